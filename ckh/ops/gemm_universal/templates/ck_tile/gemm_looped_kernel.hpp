// What a GEMM kernel is in the interfaces of 2025: its pipeline, epilogue and kernel class. The pipeline gets to know at
// compile time whether its main loop runs and how it ends, and the epilogue whether it stores or adds, so each such case
// is a class of its own. To be included after what an interface's templates take, and KernelOf.
#pragma once

namespace ckh {

using Operation = ck_tile::memory_operation_enum;

template <Epilogue, Operation>
struct EpilogueOf;

template <Operation StoreOrAdd>
struct EpilogueOf<Epilogue::cshuffle, StoreOrAdd> {
    using Class = ck_tile::CShuffleEpilogue<ShuffledProblem<StoreOrAdd>>;
};
// Raw instructions are the epilogue's choice for stores; for additions it has them, but they do not compile.
template <Operation StoreOrAdd>
struct EpilogueOf<Epilogue::direct, StoreOrAdd> {
    using Class = ck_tile::DefaultGemm2DEpilogue<DirectProblem<StoreOrAdd, StoreOrAdd == Operation::set>>;
};

template <bool HasHotLoop, ck_tile::TailNumber Tail, Operation StoreOrAdd>
struct Chosen {
    using Gemm = typename PipelineClasses<kernel::pipeline>::template Full<HasHotLoop, Tail>;
    using Kernel = KernelOf<Partitioner, Gemm, typename EpilogueOf<kernel::epilogue, StoreOrAdd>::Class>;
};

}  // namespace ckh
