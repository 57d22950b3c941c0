package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is what a finished process took, with the children it waited for.
type usage struct {
	Wall time.Duration
	CPU  time.Duration
	Peak int64 // bytes, of the largest single process
}

// rate returns bytes in MB/s over the wall.
func (u usage) rate(bytes int64) float64 { return float64(bytes) / 1e6 / u.Wall.Seconds() }

// cpuPerGiB returns processor seconds per GiB.
func (u usage) cpuPerGiB(bytes int64) float64 {
	return u.CPU.Seconds() / (float64(bytes) / (1 << 30))
}

// measureCommand runs a command to its end. Its output is kept for the error only.
func measureCommand(ctx context.Context, name string, args ...string) (usage, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err := cmd.Run()
	u := usage{Wall: time.Since(began)}
	if s := cmd.ProcessState; s != nil {
		u.CPU = s.UserTime() + s.SystemTime()
		u.Peak = s.SysUsage().(*syscall.Rusage).Maxrss << 10
	}
	if err != nil {
		return u, fmt.Errorf("%s: %w: %s", name, err, lastLine(out.String()))
	}
	return u, nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// runChild runs this program again as one of its own roles (see child) and decodes the
// JSON it prints.
func runChild(ctx context.Context, result any, role string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"child", role}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("child %s: %w", role, err)
	}
	return json.Unmarshal(out, result)
}

// runJob is runChild for a role that takes a job.
func runJob(ctx context.Context, result any, role string, job any) error {
	spec, err := json.Marshal(job)
	if err != nil {
		return err
	}
	return runChild(ctx, result, role, string(spec))
}

// requirePrograms returns an error unless the programs are installed. A peer that is not installed gets a row
// with the error.
func requirePrograms(names ...string) error {
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is not installed", name)
		}
	}
	return nil
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
