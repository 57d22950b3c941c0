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

// usage contains the resources that a process and its children used until its end.
type usage struct {
	Wall time.Duration // elapsed time
	CPU  time.Duration // processor time in user and kernel mode
	Peak int64         // bytes of the largest single process
}

// rate returns MB/s for this number of bytes.
func (u usage) rate(bytes int64) float64 { return float64(bytes) / 1e6 / u.Wall.Seconds() }

// cpuPerGiB returns processor seconds per GiB for this number of bytes.
func (u usage) cpuPerGiB(bytes int64) float64 {
	return u.CPU.Seconds() / (float64(bytes) / (1 << 30))
}

// measureCommand runs a command until it ends. Its output is used for the error only.
func measureCommand(ctx context.Context, name string, args ...string) (usage, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err := cmd.Run()
	u := usage{Wall: time.Since(began)}
	if s := cmd.ProcessState; s != nil {
		u.CPU = s.UserTime() + s.SystemTime()
		// The kernel reports KiB.
		u.Peak = s.SysUsage().(*syscall.Rusage).Maxrss << 10
	}
	if err != nil {
		return u, fmt.Errorf("%s: %w: %s", name, err, lastLine(out.String()))
	}
	return u, nil
}

// lastLine returns the last line of s that is not empty.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// runChild runs this program as one of its roles and decodes its output into result;
// see runRole.
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

// runJob is runChild for a role whose input is JSON.
func runJob(ctx context.Context, result any, role string, job any) error {
	spec, err := json.Marshal(job)
	if err != nil {
		return err
	}
	return runChild(ctx, result, role, string(spec))
}

// requirePrograms returns an error unless the programs are installed. The row of a
// missing peer contains the error.
func requirePrograms(names ...string) error {
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is not installed", name)
		}
	}
	return nil
}

// formatInt formats n in decimal.
func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
