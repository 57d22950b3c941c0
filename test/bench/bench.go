package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bench is one run of the program, with its rows.
type bench struct {
	dir     string  // absolute path of the folder for images
	part    string  // name of the current part
	commit  string  // version of the sources
	machine Machine // description of this machine
	report  Report  // rows so far
	built   bool    // true after decamp was built; see buildProgram
}

// Machine describes the machine of the figures.
type Machine struct {
	CPU    string `json:"cpu"`    // model of the processor
	Cores  int    `json:"cores"`  // number of processors
	Memory int64  `json:"memory"` // bytes
	Kernel string `json:"kernel"` // release of the kernel
	FS     string `json:"fs"`     // file system of the images
	Go     string `json:"go"`     // version of the Go toolchain
}

// newBench creates the folder for images and describes the machine.
func newBench(dir string) (*bench, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return &bench{dir: abs, commit: headCommit(), machine: describeMachine(abs)}, nil
}

// headCommit returns the current commit, with -dirty for changed files, or "unknown"
// outside of a repository.
func headCommit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// describeMachine describes this machine. Properties that cannot be read are empty.
func describeMachine(dir string) Machine {
	m := Machine{CPU: readField("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), Go: runtime.Version()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) == nil {
		m.Memory = int64(s.Totalram) * int64(s.Unit)
	}
	if out, err := exec.Command("stat", "-f", "-c", "%T", dir).Output(); err == nil {
		m.FS = strings.TrimSpace(string(out))
	}
	return m
}

// readField returns the value of the first "name : value" line of a file, or "".
func readField(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// addRow adds a row to the report and prints it.
func (b *bench) addRow(r Row) {
	r.Part, r.Commit, r.Machine, r.Time = b.part, b.commit, b.machine, time.Now().UTC()
	b.report.rows = append(b.report.rows, r)
	fmt.Fprintf(os.Stderr, "  %s: %s %s %s\n", r.Figure, formatNumber(r.Value), r.Unit, r.verdictText())
}

// atLeast adds a row whose value must not be below bound.
func (b *bench) atLeast(bound float64, r Row) { b.addBounded(">=", bound, r.Value >= bound, r) }

// atMost adds a row whose value must not be above bound.
func (b *bench) atMost(bound float64, r Row) { b.addBounded("<=", bound, r.Value <= bound, r) }

// addBounded adds a row with the text of its bound, and whether it holds.
func (b *bench) addBounded(sign string, bound float64, holds bool, r Row) {
	r.Must, r.Holds = fmt.Sprintf("%s %v", sign, bound), &holds
	b.addRow(r)
}

// median returns the middle one of the values; of an even number, the upper one.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
