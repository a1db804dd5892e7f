    // Registered kernels of the model that no name tells from another: the dispatcher never gets them.
    std::vector<std::string> left_out() const
    {
        std::vector<std::string> names;
        const auto all = registry_ ? registry_->all_kernels() : detail::Registered{};
        for(const detail::Kernel& kernel : *kernels_)
            if(kernel.split_k == 1 && detail::name_among(all, kernel).empty() && detail::is_registered(all, kernel))
                names.push_back(kernel.name);
        return names;
    }
