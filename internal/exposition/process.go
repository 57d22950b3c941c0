package exposition

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is the unit of times in /proc (USER_HZ). Linux fixes it for programs, on all
// architectures of Go.
const ticksPerSecond = 100

// Process returns the current metrics of this process, from proc(5). Values that the kernel does not
// show are left out.
func Process() []Family {
	families := append(processStat(), processNetwork()...)
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		// one of them is the folder itself, which is closed again
		families = append(families, newGauge("process_open_fds", "Number of open file descriptors.", float64(len(fds))))
	}
	var files, space unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil && unix.Getrlimit(unix.RLIMIT_AS, &space) == nil {
		families = append(families,
			newGauge("process_max_fds", "Maximum number of open file descriptors.", float64(files.Cur)),
			newGauge("process_virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes.", float64(space.Cur)))
	}
	return families
}

// processStat reads /proc/self/stat. Its fields are counted from 1, as in proc(5); the second is a name
// in parentheses that may contain spaces.
func processStat() []Family {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return nil
	}
	const firstAfterName, userTime, systemTime, startTime, virtualSize, residentPages = 3, 14, 15, 22, 23, 24
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) <= residentPages-firstAfterName {
		return nil
	}
	field := func(n int) float64 {
		v, _ := strconv.ParseUint(fields[n-firstAfterName], 10, 64) // the kernel writes numbers
		return float64(v)
	}
	families := []Family{
		newCounter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", (field(userTime)+field(systemTime))/ticksPerSecond),
		newGauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", field(virtualSize)),
		newGauge("process_resident_memory_bytes", "Resident memory size in bytes.", field(residentPages)*float64(os.Getpagesize())),
	}
	if boot, ok := readNumber("/proc/stat", "btime "); ok {
		families = append(families, newGauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", boot+field(startTime)/ticksPerSecond))
	}
	return families
}

// readNumber returns the number after prefix in the first line of a file that begins with prefix.
func readNumber(path, prefix string) (float64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v, err == nil
		}
	}
	return 0, false
}

// processNetwork reads the counters of the network namespace from the lines IpExt of
// /proc/self/net/netstat: the first has names, the second values.
func processNetwork() []Family {
	text, err := os.ReadFile("/proc/self/net/netstat")
	if err != nil {
		return nil
	}
	var octets struct{ in, out float64 }
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "IpExt:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names[:min(len(names), len(fields))] {
			v, _ := strconv.ParseFloat(fields[i], 64) // 0 for the first field, which is text
			switch name {
			case "InOctets":
				octets.in = v
			case "OutOctets":
				octets.out = v
			}
		}
	}
	return []Family{
		newCounter("process_network_receive_bytes_total", "Number of bytes received by the process over the network.", octets.in),
		newCounter("process_network_transmit_bytes_total", "Number of bytes sent by the process over the network.", octets.out),
	}
}
