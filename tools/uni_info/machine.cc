// The machine as hwloc sees it, less what this process may not use.
#include <hwloc.h>

#include <memory>

#include "base/env.h"
#include "tools/uni_info/gather.h"

namespace unisono::uni_info {
namespace {

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

Topology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  // The whole machine, so that the text can say what is there and not for us.
  (void)hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  return hwloc_topology_load(raw) == 0 ? std::move(topology) : nullptr;
}

std::string info_of(hwloc_obj_t object, const char* name) {
  const char* const text = object == nullptr ? nullptr : hwloc_obj_get_info_by_name(object, name);
  return text == nullptr ? "" : text;
}

std::string list_of(hwloc_const_bitmap_t set) {
  char* raw = nullptr;
  if (hwloc_bitmap_list_asprintf(&raw, set) < 0) return "";
  const std::string text(raw);
  free(raw);
  return text;
}

Json caches_of(hwloc_topology_t topology) {
  Json caches = Json::array();
  const struct {
    hwloc_obj_type_t type;
    const char* name;
  } kKinds[] = {{HWLOC_OBJ_L1CACHE, "L1d"},
                {HWLOC_OBJ_L1ICACHE, "L1i"},
                {HWLOC_OBJ_L2CACHE, "L2"},
                {HWLOC_OBJ_L3CACHE, "L3"}};
  for (const auto& kind : kKinds) {
    const int count = hwloc_get_nbobjs_by_type(topology, kind.type);
    const hwloc_obj_t first = hwloc_get_obj_by_type(topology, kind.type, 0);
    if (count <= 0 || first == nullptr) continue;
    caches.push_back({{"name", kind.name},
                      {"count", count},
                      {"bytes", first->attr->cache.size},
                      {"line_bytes", first->attr->cache.linesize},
                      {"shared_by", hwloc_bitmap_weight(first->cpuset)}});
  }
  return caches;
}

Json numa_nodes_of(hwloc_topology_t topology) {
  Json nodes = Json::array();
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    nodes.push_back({{"number", node->os_index},
                     {"memory_bytes", node->attr->numanode.local_memory},
                     {"cores", list_of(node->cpuset)}});
  }
  return nodes;
}

}  // namespace

Json describe_machine() {
  const Topology topology = load_topology();
  if (topology == nullptr) return {{"problem", "hwloc cannot read this machine's topology"}};
  const auto count = [&](hwloc_obj_type_t type) {
    return hwloc_get_nbobjs_by_type(topology.get(), type);
  };
  Json machine;
  machine["processor"] =
      info_of(hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_PACKAGE, 0), "CPUModel");
  machine["packages"] = count(HWLOC_OBJ_PACKAGE);
  machine["physical_cores"] = count(HWLOC_OBJ_CORE);
  machine["hardware_threads"] = count(HWLOC_OBJ_PU);
  machine["numa_nodes"] = numa_nodes_of(topology.get());
  machine["caches"] = caches_of(topology.get());
  hwloc_bitmap_t bound = hwloc_bitmap_alloc();
  if (hwloc_get_cpubind(topology.get(), bound, HWLOC_CPUBIND_PROCESS) == 0) {
    machine["affinity"] = list_of(bound);
  }
  hwloc_bitmap_free(bound);
  machine["usable_cores"] = usable_cores();
  return machine;
}

}  // namespace unisono::uni_info
