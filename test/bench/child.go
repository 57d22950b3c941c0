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

// taken is what one role of this program did and cost, printed as JSON by child.
type measurement struct {
	Bytes   int64   `json:"bytes"`   // bytes of data, as the figure counts them
	Seconds float64 `json:"seconds"` // wall time without the start of the process
	CPU     float64 `json:"cpu"`     // processor seconds of the same stretch
	Peak    int64   `json:"peak"`    // bytes resident at most, of the whole process
	Wire    int64   `json:"wire"`    // bytes of answers taken from the network
	Server  float64 `json:"server"`  // processor seconds of the server that was written to
	Note    string  `json:"note"`
}

func (t measurement) rate() float64      { return float64(t.Bytes) / 1e6 / t.Seconds }
func (t measurement) cpuPerGiB() float64 { return t.CPU / (float64(t.Bytes) / (1 << 30)) }

// runRole is the other side of runChild: one role, one measurement, JSON on stdout. The
// collector and the scheduler are set as in decamp.
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
		"stream":  childStream,
		"mounts":  childMounts,
		"pwrite":  childPwrite,
	}
	ctx := context.Background()
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

// timeWork runs f between two readings of the clocks.
func timeWork(f func() error) (measurement, error) {
	runtime.GC()
	cpu, began := cpuSeconds(), time.Now()
	err := f()
	return measurement{Seconds: time.Since(began).Seconds(), CPU: cpuSeconds() - cpu}, err
}

func cpuSeconds() float64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
}

// peakResident returns VmHWM in bytes. (ru_maxrss would do, but a child inherits its
// parent's between fork and exec.)
func peakResident() int64 {
	var kib int64
	if _, err := fmt.Sscan(strings.Fields(readField("/proc/self/status", "VmHWM"))[0], &kib); err != nil {
		return 0
	}
	return kib << 10
}
