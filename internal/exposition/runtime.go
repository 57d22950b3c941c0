package exposition

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// runtimeMetrics are the metrics whose value is the sum of metrics of the package runtime/metrics.
var runtimeMetrics = []struct {
	name string
	kind Type
	help string
	of   []string
}{
	{"go_gc_gogc_percent", Gauge, "Heap size target percentage configured by the user, otherwise 100. This value is set by the GOGC environment variable, and the runtime/debug.SetGCPercent function. Sourced from /gc/gogc:percent.", []string{"/gc/gogc:percent"}},
	{"go_gc_gomemlimit_bytes", Gauge, "Go runtime memory limit configured by the user, otherwise math.MaxInt64. This value is set by the GOMEMLIMIT environment variable, and the runtime/debug.SetMemoryLimit function. Sourced from /gc/gomemlimit:bytes.", []string{"/gc/gomemlimit:bytes"}},
	{"go_memstats_alloc_bytes", Gauge, "Number of bytes allocated in heap and currently in use. Equals to /memory/classes/heap/objects:bytes.", []string{"/memory/classes/heap/objects:bytes"}},
	{"go_memstats_alloc_bytes_total", Counter, "Total number of bytes allocated in heap until now, even if released already. Equals to /gc/heap/allocs:bytes.", []string{"/gc/heap/allocs:bytes"}},
	{"go_memstats_buck_hash_sys_bytes", Gauge, "Number of bytes used by the profiling bucket hash table. Equals to /memory/classes/profiling/buckets:bytes.", []string{"/memory/classes/profiling/buckets:bytes"}},
	{"go_memstats_frees_total", Counter, "Total number of heap objects frees. Equals to /gc/heap/frees:objects + /gc/heap/tiny/allocs:objects.", []string{"/gc/heap/frees:objects", "/gc/heap/tiny/allocs:objects"}},
	{"go_memstats_gc_sys_bytes", Gauge, "Number of bytes used for garbage collection system metadata. Equals to /memory/classes/metadata/other:bytes.", []string{"/memory/classes/metadata/other:bytes"}},
	{"go_memstats_heap_alloc_bytes", Gauge, "Number of heap bytes allocated and currently in use, same as go_memstats_alloc_bytes. Equals to /memory/classes/heap/objects:bytes.", []string{"/memory/classes/heap/objects:bytes"}},
	{"go_memstats_heap_idle_bytes", Gauge, "Number of heap bytes waiting to be used. Equals to /memory/classes/heap/released:bytes + /memory/classes/heap/free:bytes.", []string{"/memory/classes/heap/released:bytes", "/memory/classes/heap/free:bytes"}},
	{"go_memstats_heap_inuse_bytes", Gauge, "Number of heap bytes that are in use. Equals to /memory/classes/heap/objects:bytes + /memory/classes/heap/unused:bytes", []string{"/memory/classes/heap/objects:bytes", "/memory/classes/heap/unused:bytes"}},
	{"go_memstats_heap_objects", Gauge, "Number of currently allocated objects. Equals to /gc/heap/objects:objects.", []string{"/gc/heap/objects:objects"}},
	{"go_memstats_heap_released_bytes", Gauge, "Number of heap bytes released to OS. Equals to /memory/classes/heap/released:bytes.", []string{"/memory/classes/heap/released:bytes"}},
	{"go_memstats_heap_sys_bytes", Gauge, "Number of heap bytes obtained from system. Equals to /memory/classes/heap/objects:bytes + /memory/classes/heap/unused:bytes + /memory/classes/heap/released:bytes + /memory/classes/heap/free:bytes.",
		[]string{"/memory/classes/heap/objects:bytes", "/memory/classes/heap/unused:bytes", "/memory/classes/heap/released:bytes", "/memory/classes/heap/free:bytes"}},
	{"go_memstats_mallocs_total", Counter, "Total number of heap objects allocated, both live and gc-ed. Semantically a counter version for go_memstats_heap_objects gauge. Equals to /gc/heap/allocs:objects + /gc/heap/tiny/allocs:objects.", []string{"/gc/heap/allocs:objects", "/gc/heap/tiny/allocs:objects"}},
	{"go_memstats_mcache_inuse_bytes", Gauge, "Number of bytes in use by mcache structures. Equals to /memory/classes/metadata/mcache/inuse:bytes.", []string{"/memory/classes/metadata/mcache/inuse:bytes"}},
	{"go_memstats_mcache_sys_bytes", Gauge, "Number of bytes used for mcache structures obtained from system. Equals to /memory/classes/metadata/mcache/inuse:bytes + /memory/classes/metadata/mcache/free:bytes.", []string{"/memory/classes/metadata/mcache/inuse:bytes", "/memory/classes/metadata/mcache/free:bytes"}},
	{"go_memstats_mspan_inuse_bytes", Gauge, "Number of bytes in use by mspan structures. Equals to /memory/classes/metadata/mspan/inuse:bytes.", []string{"/memory/classes/metadata/mspan/inuse:bytes"}},
	{"go_memstats_mspan_sys_bytes", Gauge, "Number of bytes used for mspan structures obtained from system. Equals to /memory/classes/metadata/mspan/inuse:bytes + /memory/classes/metadata/mspan/free:bytes.", []string{"/memory/classes/metadata/mspan/inuse:bytes", "/memory/classes/metadata/mspan/free:bytes"}},
	{"go_memstats_next_gc_bytes", Gauge, "Number of heap bytes when next garbage collection will take place. Equals to /gc/heap/goal:bytes.", []string{"/gc/heap/goal:bytes"}},
	{"go_memstats_other_sys_bytes", Gauge, "Number of bytes used for other system allocations. Equals to /memory/classes/other:bytes.", []string{"/memory/classes/other:bytes"}},
	{"go_memstats_stack_inuse_bytes", Gauge, "Number of bytes obtained from system for stack allocator in non-CGO environments. Equals to /memory/classes/heap/stacks:bytes.", []string{"/memory/classes/heap/stacks:bytes"}},
	{"go_memstats_stack_sys_bytes", Gauge, "Number of bytes obtained from system for stack allocator. Equals to /memory/classes/heap/stacks:bytes + /memory/classes/os-stacks:bytes.", []string{"/memory/classes/heap/stacks:bytes", "/memory/classes/os-stacks:bytes"}},
	{"go_memstats_sys_bytes", Gauge, "Number of bytes obtained from system. Equals to /memory/classes/total:byte.", []string{"/memory/classes/total:bytes"}},
	{"go_sched_gomaxprocs_threads", Gauge, "The current runtime.GOMAXPROCS setting, or the number of operating system threads that can execute user-level Go code simultaneously. Sourced from /sched/gomaxprocs:threads.", []string{"/sched/gomaxprocs:threads"}},
}

// Runtime returns the current metrics of the Go runtime.
func Runtime() []Family {
	var samples []metrics.Sample
	for _, m := range runtimeMetrics {
		for _, name := range m.of {
			samples = append(samples, metrics.Sample{Name: name})
		}
	}
	metrics.Read(samples)
	threads, _ := runtime.ThreadCreateProfile(nil)
	families := []Family{
		gcPauses(),
		newGauge("go_goroutines", "Number of goroutines that currently exist.", float64(runtime.NumGoroutine())),
		{Name: "go_info", Help: "Information about the Go environment.", Type: Gauge, Labels: []string{"version"}, Metrics: []Metric{{Labels: []string{runtime.Version()}, Value: 1}}},
		newGauge("go_threads", "Number of OS threads created.", float64(threads)),
	}
	for _, m := range runtimeMetrics {
		sum := uint64(0)
		for range m.of {
			if samples[0].Value.Kind() == metrics.KindUint64 { // a later Go may not have it
				sum += samples[0].Value.Uint64()
			}
			samples = samples[1:]
		}
		families = append(families, Family{Name: m.name, Help: m.help, Type: m.kind, Metrics: []Metric{{Value: float64(sum)}}})
	}
	return append(families, newGauge("go_memstats_last_gc_time_seconds", "Number of seconds since 1970 of last garbage collection.", lastGCTime()))
}

// newGauge returns a family with one gauge without labels.
func newGauge(name, help string, value float64) Family {
	return Family{Name: name, Help: help, Type: Gauge, Metrics: []Metric{{Value: value}}}
}

// newCounter returns a family with one counter without labels.
func newCounter(name, help string, value float64) Family {
	return Family{Name: name, Help: help, Type: Counter, Metrics: []Metric{{Value: value}}}
}

// gcPauses returns the quantiles of garbage collection pauses: 0, 0.25, 0.5, 0.75 and 1.
func gcPauses() Family {
	stats := debug.GCStats{PauseQuantiles: make([]time.Duration, 5)}
	debug.ReadGCStats(&stats)
	m := Metric{Value: stats.PauseTotal.Seconds(), Count: uint64(stats.NumGC)}
	for i, pause := range stats.PauseQuantiles {
		m.Points = append(m.Points, Point{float64(i) / float64(len(stats.PauseQuantiles)-1), pause.Seconds()})
	}
	return Family{Name: "go_gc_duration_seconds", Help: "A summary of the wall-time pause (stop-the-world) duration in garbage collection cycles.", Type: Summary, Metrics: []Metric{m}}
}

// lastGCTime returns the end of the last garbage collection, in seconds since 1970.
func lastGCTime() float64 {
	var stats debug.GCStats
	debug.ReadGCStats(&stats)
	return float64(stats.LastGC.UnixNano()) / float64(time.Second)
}
