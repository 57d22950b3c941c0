package main

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
)

// availableMemory returns how many bytes could be taken without swapping: what the kernel
// estimates (MemAvailable in proc_meminfo(5)), and no more than the control group allows.
func availableMemory() (free int64, known bool) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	free, known = memAvailable(text)
	if left, limited := groupMemory("/sys/fs/cgroup"); limited && known {
		free = min(free, left)
	}
	return free, known
}

// memAvailable reads the line "MemAvailable:   23921056 kB".
func memAvailable(meminfo []byte) (int64, bool) {
	lines := bufio.NewScanner(bytes.NewReader(meminfo))
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) >= 2 && f[0] == "MemAvailable:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}

// groupMemory is what a cgroup v2 leaves of its memory.max; false if it sets none.
func groupMemory(dir string) (int64, bool) {
	limit, ok := readNumber(dir + "/memory.max")
	used, usedOK := readNumber(dir + "/memory.current")
	return max(limit-used, 0), ok && usedOK
}

// readNumber reads a file that holds a number; "max" is none.
func readNumber(path string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}
