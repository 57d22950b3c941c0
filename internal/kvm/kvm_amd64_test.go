package kvm

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Run ends within its CPU budget for any state of /dev/kvm, and an error has a message.
func TestKVMRunEndsWithinCPUBudget(t *testing.T) {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		t.Skip("no /dev/kvm here")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin, err := threadTime()
	mustSucceed(t, err)
	result := Run(t.Context(), "/dev/kvm")
	end, err := threadTime()
	mustSucceed(t, err)
	if took := end - begin; took > 10*cpuBudget {
		t.Errorf("Run uses %v of CPU time", took)
	}
	if result != nil && result.Error() == "" {
		t.Error("Run returns an error without a message")
	}
	t.Logf("%v after %v", result, end-begin)
}

// Run stops a vCPU that does not end when its context is canceled.
func TestKVMEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, "/dev/kvm"); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestKVMRefusesOtherDevices(t *testing.T) {
	if err := Run(t.Context(), filepath.Join(t.TempDir(), "kvm")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing device: %v", err)
	}
	if err := Run(t.Context(), "/dev/null"); err == nil || !strings.Contains(err.Error(), "KVM_GET_API_VERSION") {
		t.Errorf("/dev/null: %v", err)
	}
}

func mustSucceed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
