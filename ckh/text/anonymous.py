"""Anonymize texts that leave this machine: user and host names, and home folders."""

from __future__ import annotations

import os
import pwd
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_USER, _HOST, _HOME = "USER", "HOST", "~"
_USER_VARIABLES = ("USER", "LOGNAME", "SUDO_USER")
_ANY_HOME = re.compile(r"/(?:home|Users)/[^/\s:'\"]+")
_NO_SECRETS = ("", "root", "localhost")


class Anonymizer:
    """Replaces home folders by ~, and user and host names by USER and HOST, as whole words."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        users = {environ.get(name, "") for name in _USER_VARIABLES}
        homes = {environ.get("HOME", "")}
        with suppress(KeyError):  # a container's user may be missing in the table
            entry = pwd.getpwuid(os.getuid())
            users.add(entry.pw_name)
            homes.add(entry.pw_dir)
        hosts = {os.uname().nodename, environ.get("HOSTNAME", "")}
        hosts |= {host.partition(".")[0] for host in hosts}
        self._homes = sorted((str(Path(home)) for home in homes if home not in ("", "/")), key=len, reverse=True)
        self._words = [(_words(hosts), _HOST), (_words(users), _USER)]

    def text(self, text: str) -> str:
        """Anonymize a text."""
        for home in self._homes:
            text = re.sub(rf"{re.escape(home)}(?![^/\s:'\",;])", _HOME, text)
        text = _ANY_HOME.sub(_HOME, text)
        for words, instead in self._words:
            text = words.sub(instead, text)
        return text

    def value(self, value: Any) -> Any:
        """Anonymize all strings of a JSON value; keys are ckh's and unchanged."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return {key: self.value(item) for key, item in value.items()} if isinstance(value, dict) else value


def _words(names: set[str]) -> re.Pattern[str]:
    """Pattern of whole words among some names; matches nothing if there are none."""
    known = sorted((re.escape(name) for name in names if name not in _NO_SECRETS), key=len, reverse=True)
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(known) or '(?!)'})(?![A-Za-z0-9])", re.IGNORECASE)
