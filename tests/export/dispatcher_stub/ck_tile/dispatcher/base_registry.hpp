// What the published registry of convolutions uses of its base, and how a kernel is registered: a stand-in for tests.
#pragma once
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace ck_tile {
namespace dispatcher {

enum class Priority { Low = 0, Normal = 1, High = 2 };

template <class Derived, class Key, class Instance, class Hash>
class BaseRegistry
{
    public:
    struct Entry
    {
        std::shared_ptr<Instance> instance;
        Priority priority;
    };

    // A key that is there keeps its kernel, but for one of a higher priority.
    bool register_kernel(const Key& key, std::shared_ptr<Instance> instance, Priority priority = Priority::Normal)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto it = entries_.find(key);
        if(it != entries_.end() && it->second.priority >= priority)
            return false;
        entries_[key] = Entry{std::move(instance), priority};
        return true;
    }

    protected:
    std::mutex& mutex() const { return mutex_; }
    const std::unordered_map<Key, Entry, Hash>& entries() const { return entries_; }
    std::unordered_map<Key, Entry, Hash>& entries_mut() { return entries_; }

    private:
    mutable std::mutex mutex_;
    std::unordered_map<Key, Entry, Hash> entries_;
};

} // namespace dispatcher
} // namespace ck_tile
