"""Malicious kernels, or kernels that look like it: behaviour, required status, and a part of the message."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ckh.bench.supervision.protocol import Reply
from ckh.schema import Status
from tests.bench.faults import CLAIMED_MS, GOOD, HANG, Fault

_RIGHT = GOOD.run
# As written by a worker, except for the number of the job, which no kernel can guess.
_HONEST = Reply(0, Status.OK, "", (1.5,), 1, {"run": 0.1}).to_line().decode()
REPLY = _HONEST.replace('"id": 0', '"id": @id@').replace("[1.5]", "[@times@]").replace('"', '\\"').replace("\n", "\\n")


def forged(number: str = "0", times: str = "1.5") -> str:
    """A reply as a C literal."""
    return f'"{REPLY.replace("@id@", number).replace("@times@", times)}"'


def to_all(text: str) -> str:
    """Statements that write a text to all open file descriptors except standard error."""
    write = "for (int f = 0; f < 64; ++f) if (f != 2) { if (write(f, all, strlen(all))) {} }"
    return f"{{ const char* all = {text}; {write} }}"


def claiming(value: str, number: int | None = None) -> Fault:
    """A kernel that states a time for all its samples, or for a single one."""
    which = "true" if number is None else f"i == {number}"
    return Fault(time=f"for (int i = 0; i < samples; ++i) ns[i] = {which} ? {value} : {CLAIMED_MS} * 1e6; return 0;")


def at_load(statements: str) -> Fault:
    """A right kernel that executes statements when it is loaded."""
    return replace(GOOD, helpers=f"struct AtLoad {{ AtLoad() {{ {statements} }} }} at_load;")


def in_thread(statements: str) -> Fault:
    """A right kernel that leaves a thread behind."""
    helper = f"static void* work(void*) {{ {statements} return nullptr; }}"
    return Fault(f"pthread_t t; pthread_create(&t, nullptr, work, nullptr); {_RIGHT}", helpers=helper)


_FOREVER = "for (;;) pause();"
_STOPS = "for (int i = 1; i < 32; ++i) signal(i, SIG_IGN); sigset_t all; sigfillset(&all);"
_LEFT_PROCESS = (Status.CRASH, "left a process behind")
_LEFT_THREAD = (Status.CRASH, "left a thread behind")
_LATE = (Status.TIMEOUT, "no result within")
_NO_TIME = Status.IMPOSSIBLE_TIME
_OTHER_JOB = "a reply that cannot be: it is to another job"
_NONSENSE = "the worker answered nonsense"


@dataclass(frozen=True, slots=True)
class Kind:
    """Behaviour of a kernel, and the required contents of its row."""

    fault: Fault
    status: Status
    message: str


KINDS: dict[str, Kind] = {
    # Processes and threads.
    "forks, and both go on": Kind(Fault(f"fork(); {_RIGHT}"), *_LEFT_PROCESS),
    "forks when it is timed": Kind(Fault(time=f"fork(); {GOOD.time}"), *_LEFT_PROCESS),
    "forks when it is loaded": Kind(at_load("fork();"), *_LEFT_PROCESS),
    "forks when it is asked for its workspace": Kind(Fault(workspace="(fork(), 64)"), *_LEFT_PROCESS),
    "forks, and the child stays": Kind(Fault(f"if (!fork()) {_FOREVER} {_RIGHT}"), *_LEFT_PROCESS),
    "forks fifty children that stay": Kind(
        Fault(f"for (int i = 0; i < 50; ++i) if (!fork()) {_FOREVER} {_RIGHT}"), *_LEFT_PROCESS
    ),
    "forks children that ignore all signals": Kind(
        Fault(f"if (!fork()) {{ {_STOPS} sigprocmask(SIG_BLOCK, &all, nullptr); {_FOREVER} }} {_RIGHT}"), *_LEFT_PROCESS
    ),
    "leaves a daemon in a session of its own": Kind(
        Fault(
            f"pid_t c = fork(); if (!c) {{ setsid(); if (!fork()) {_FOREVER} _exit(0); }} waitpid(c, 0, 0); {_RIGHT}"
        ),
        *_LEFT_PROCESS,
    ),
    "leaves a shell's job behind": Kind(Fault(f'if (system("sleep 1000 &")) {{}} {_RIGHT}'), *_LEFT_PROCESS),
    "forks, and the child waits for jobs": Kind(
        Fault(f"if (!fork()) {{ char job[4096]; for (;;) if (read(0, job, sizeof job)) {{}} }} {_RIGHT}"),
        *_LEFT_PROCESS,
    ),
    "forks, and the child replies": Kind(
        Fault(f"pid_t c = fork(); if (!c) {{ {to_all(forged())} _exit(0); }} waitpid(c, 0, 0); {_RIGHT}"),
        Status.CRASH,
        "a process that the kernel started wrote to the supervisor",
    ),
    "forks, and the child replies later": Kind(
        Fault(f"if (!fork()) {{ usleep(300000); {to_all(forged())} _exit(0); }} {_RIGHT}"), *_LEFT_PROCESS
    ),
    "crashes, and a child keeps its pipes": Kind(
        Fault(f"if (!fork()) {_FOREVER} abort();"), Status.CRASH, "killed by SIGABRT"
    ),
    "crashes, and a daemon floods its pipes": Kind(
        Fault(f"if (!fork()) {{ setsid(); for (;;) {{ {to_all(forged())} }} }} usleep(100000); abort();"),
        Status.CRASH,
        "a process that the kernel started wrote to the supervisor",
    ),
    "leaves a thread that replies late": Kind(
        in_thread(f"usleep(300000); {to_all(forged())} {_FOREVER}"), *_LEFT_THREAD
    ),
    # Replies.
    "replies itself": Kind(Fault(f"{to_all(forged())} {_RIGHT}"), Status.CRASH, _OTHER_JOB),
    "replies to all jobs": Kind(
        Fault(
            f"char text[1000]; for (int i = 0; i < 100; ++i) {{"
            f" snprintf(text, sizeof text, {forged('%d')}, i); {to_all('text')} }} {_RIGHT}"
        ),
        Status.CRASH,
        _OTHER_JOB,
    ),
    "replies with a bracket 100,000 times": Kind(
        Fault(f"static char deep[100001]; memset(deep, '[', 100000); deep[99999] = 10; {to_all('deep')} {_RIGHT}"),
        Status.CRASH,
        _NONSENSE,
    ),
    "replies without end": Kind(
        Fault(f"static char much[65536]; memset(much, 'a', 65535); for (;;) {to_all('much')}"), Status.CRASH, _NONSENSE
    ),
    "replies with infinite times": Kind(Fault(f"{to_all(forged('0', 'Infinity'))} {_RIGHT}"), Status.CRASH, _NONSENSE),
    "gives itself a job": Kind(
        Fault(
            to_all('"{\\"op\\": \\"measure\\", \\"id\\": 0, \\"problem\\": \\"\\", \\"samples\\": 1}\\n"')
            + f" {_RIGHT}"
        ),
        Status.CRASH,
        _NONSENSE,
    ),
    # Times.
    "takes NaN once": Kind(claiming("0.0 / 0.0", 0), _NO_TIME, "says that it took"),
    "takes for ever, it says": Kind(claiming("1 / 0.0"), _NO_TIME, "says that it took inf ns"),
    "takes less than no time": Kind(claiming("-5e6"), _NO_TIME, "says that it took -5e+06 ns"),
    "says no time": Kind(Fault(time="return 0;"), _NO_TIME, "says that it took 0 ns"),
    # Hanging and stopping.
    "hangs": Kind(Fault("for (volatile int i = 0;;) i = i + 1;"), *_LATE),
    "hangs when it is timed": Kind(Fault(time=HANG.run), *_LATE),
    "hangs when it is loaded": Kind(at_load(HANG.run), *_LATE),
    "hangs and ignores all signals": Kind(Fault(f"{_STOPS} sigprocmask(SIG_BLOCK, &all, nullptr); {_FOREVER}"), *_LATE),
    "crashes again and again in its handler": Kind(
        Fault("signal(SIGSEGV, [](int) {}); *reinterpret_cast<volatile int*>(8) = 1; return 0;"), *_LATE
    ),
    "stops itself": Kind(Fault(f"raise(SIGSTOP); {_RIGHT}"), *_LATE),
    "stops its process group": Kind(Fault(f"kill(0, SIGSTOP); {_RIGHT}"), *_LATE),
    "stops its guard and hangs": Kind(Fault(f"kill(getppid(), SIGSTOP); {_FOREVER}"), *_LATE),
    # Ends.
    "throws": Kind(Fault("throw 1;"), Status.CRASH, "killed by SIGABRT"),
    "overflows its stack": Kind(
        Fault(
            "return int(deep(1));",
            helpers="static int deep(volatile int n) { volatile char a[4096]; a[n] = 1; "
            "return deep(n + a[n] % 2) + a[n]; }",
        ),
        Status.CRASH,
        "killed by SIGSEGV",
    ),
    "exits in an orderly way": Kind(Fault("exit(3);"), Status.CRASH, "exited with code 3"),
    "exits when it is loaded": Kind(at_load("_exit(9);"), Status.CRASH, "exited with code 9"),
    "kills its process group": Kind(Fault("kill(0, SIGTERM); pause(); return 0;"), Status.CRASH, "killed by SIGTERM"),
    "kills its guard": Kind(Fault("kill(getppid(), SIGKILL); pause(); return 0;"), Status.CRASH, "killed by SIGKILL"),
    "kills its guard and leaves children": Kind(
        Fault(f"if (!fork()) {_FOREVER} kill(getppid(), SIGKILL); pause(); return 0;"),
        Status.CRASH,
        "killed by SIGKILL",
    ),
    "has its guard end": Kind(Fault("kill(getppid(), SIGTERM); pause(); return 0;"), Status.CRASH, "killed by SIGTERM"),
    # Floods and pipes.
    "prints without end": Kind(Fault('for (;;) fputs("never ending\\n", stderr);'), *_LATE),
    "complains at length": Kind(
        replace(
            GOOD,
            unsupported="text(p)",
            helpers="static const char* text(const Problem*) {"
            " static char much[1 << 20]; memset(much, '!', sizeof much - 1); return much; }",
        ),
        Status.UNSUPPORTED,
        2000 * "!",
    ),
    "closes its pipes": Kind(
        Fault(f"for (int i = 0; i < 100; ++i) if (i != 2) close(i); {_RIGHT}"), Status.CRASH, "Bad file descriptor"
    ),
    "has its pipes end nowhere": Kind(
        Fault('int null = open("/dev/null", O_RDWR); for (int i = 0; i < 64; ++i) dup2(null, i); _exit(0);'),
        Status.CRASH,
        "exited with code 0",
    ),
    "ends its jobs": Kind(Fault(f"close(0); {_RIGHT}"), Status.OK, ""),
    "opens all files that it can": Kind(
        Fault(f'while (open("/dev/null", O_RDONLY) >= 0) {{}} {_RIGHT}'), Status.CRASH, "Too many open files"
    ),
    # Memory and limits.
    "lowers the limit of memory": Kind(
        Fault(f"rlimit none = {{0, 0}}; setrlimit(RLIMIT_AS, &none); {_RIGHT}"), Status.OK, ""
    ),
    "has an alarm go off after it": Kind(Fault(f"ualarm(200000, 0); {_RIGHT}"), Status.OK, ""),
}


def processes_with(mark: str) -> list[str]:
    """Command lines of processes with a variable in their environment, which all descendants inherit."""
    return [text for folder in Path("/proc").glob("[0-9]*") if (text := command_line(folder, mark.encode()))]


def command_line(folder: Path, mark: bytes) -> str:
    """Command line of a process with the mark; empty for others, and if it has ended or is another user's."""
    try:
        environment = (folder / "environ").read_bytes().split(b"\0")
        return (folder / "cmdline").read_text(encoding="utf-8").replace("\0", " ") if mark in environment else ""
    except OSError:
        return ""
