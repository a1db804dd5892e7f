// The name of a declaration, which ends at the warp tile, of a kernel by its full name; empty if none
// can say all of it: it has no split image, specialization, explicit GEMM or stream-K, and double buffers where
// they must be.
inline std::string declared_name(const std::string& name)
{
    std::size_t end = name.find("wave_");
    for(int sizes = 0; sizes < 3 && end != std::string::npos; ++sizes)
        end = name.find('_', end + (sizes ? 1 : 5));
    const std::string rest = end == std::string::npos ? "" : name.substr(end);
    const bool is_double   = @DOUBLE@;
    return rest == (is_double ? "_dsb" : "") ? name.substr(0, end) : "";
}
