package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/decamp/decamp/internal/tuning"
)

// measurement is the result of one role of this program, which prints it as JSON.
type measurement struct {
	Bytes   int64   `json:"bytes"`   // bytes of data, in the unit of the figure
	Seconds float64 `json:"seconds"` // wall time without the start of the process
	CPU     float64 `json:"cpu"`     // processor seconds in the same time
	Peak    int64   `json:"peak"`    // largest resident memory of the process in bytes
	Wire    int64   `json:"wire"`    // bytes received from the network
	Server  float64 `json:"server"`  // processor seconds of the server that was written to
	Note    string  `json:"note"`    // remark for the row
}

// rate returns MB/s.
func (t measurement) rate() float64 { return float64(t.Bytes) / 1e6 / t.Seconds }

// cpuPerGiB returns processor seconds per GiB.
func (t measurement) cpuPerGiB() float64 { return t.CPU / (float64(t.Bytes) / (1 << 30)) }

// runRole runs one role of this program, with one measurement, and prints the result as
// JSON. runChild starts it. Garbage collector and scheduler are configured as in
// decamp.
func runRole(args []string) error {
	tuning.Apply()
	roles := map[string]func(context.Context, []string) (measurement, error){
		"pull":    childPull,
		"nfc":     childNFC,
		"drain":   childDrain,
		"stock":   childStock,
		"rounds":  childRounds,
		"write":   childWrite,
		"bomb":    childBomb,
		"check":   childCheck,
		"verify":  childVerify,
		"convert": childConvert,
		"fan":     childFan,
		"flight":  childFlight,
		"stream":  childStream,
		"mounts":  childMounts,
		"pwrite":  childPwrite,
	}
	ctx := context.Background()
	// These roles print results of other types, or serve until their input ends.
	others := map[string]func(context.Context, []string) error{
		"budget": childBudget,
		"clones": childClones,
		"events": childEvents,
		"lab":    childLab,
		"land":   childLand,
		"mount":  childMount,
		"serve":  childServe,
		"sink":   childSink,
	}
	if other, ok := others[args[0]]; ok {
		return other(ctx, args[1:])
	}
	role, ok := roles[args[0]]
	if !ok {
		return fmt.Errorf("no child role %q", args[0])
	}
	t, err := role(ctx, args[1:])
	if err != nil {
		return err
	}
	t.Peak = peakResident()
	return json.NewEncoder(os.Stdout).Encode(t)
}

// timeWork measures wall and processor time of f. It collects garbage first.
func timeWork(f func() error) (measurement, error) {
	runtime.GC()
	cpu, began := cpuSeconds(), time.Now()
	err := f()
	return measurement{Seconds: time.Since(began).Seconds(), CPU: cpuSeconds() - cpu}, err
}

// cpuSeconds returns the processor seconds of this process.
func cpuSeconds() float64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
}

// peakResident returns VmHWM in bytes. ru_maxrss is not suitable: between fork and
// exec, a child inherits that of its parent.
func peakResident() int64 {
	var kib int64
	if _, err := fmt.Sscan(strings.Fields(readField("/proc/self/status", "VmHWM"))[0], &kib); err != nil {
		return 0
	}
	return kib << 10
}
