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

// bench is one run: its folder and its rows.
type bench struct {
	dir     string
	part    string
	commit  string
	machine Machine
	report  Report
	built   bool // decamp: see program
}

// Machine is what the figures were measured on.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory"` // bytes
	Kernel string `json:"kernel"`
	FS     string `json:"fs"` // file system of the images
	Go     string `json:"go"`
}

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

func headCommit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

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

// readField returns the value of the first "name : value" line of a file.
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

// addRow books a row.
func (b *bench) addRow(r Row) {
	r.Part, r.Commit, r.Machine, r.Time = b.part, b.commit, b.machine, time.Now().UTC()
	b.report.rows = append(b.report.rows, r)
	fmt.Fprintf(os.Stderr, "  %s: %s %s %s\n", r.Figure, formatNumber(r.Value), r.Unit, r.verdictText())
}

// atLeast and atMost book a row with a bound.
func (b *bench) atLeast(bound float64, r Row) { b.addBounded(">=", bound, r.Value >= bound, r) }
func (b *bench) atMost(bound float64, r Row)  { b.addBounded("<=", bound, r.Value <= bound, r) }

func (b *bench) addBounded(sign string, bound float64, holds bool, r Row) {
	r.Must, r.Holds = fmt.Sprintf("%s %v", sign, bound), &holds
	b.addRow(r)
}

// median returns the middle of the values.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
