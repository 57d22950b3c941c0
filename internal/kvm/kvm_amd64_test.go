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

// Whatever /dev/kvm does on this machine, Run ends within its budget, and an error has a reason.
func TestKVMAnswers(t *testing.T) {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		t.Skip("no /dev/kvm here")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin, err := threadTime()
	must(t, err)
	said := Run(t.Context(), "/dev/kvm")
	end, err := threadTime()
	must(t, err)
	if took := end - begin; took > 10*cpuBudget {
		t.Errorf("it used %v", took)
	}
	if said != nil && said.Error() == "" {
		t.Error("an error without a reason")
	}
	t.Logf("%v after %v", said, end-begin)
}

// A vCPU that does not end is left when its context ends.
func TestKVMEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, "/dev/kvm"); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestKVMThatIsNone(t *testing.T) {
	if err := Run(t.Context(), filepath.Join(t.TempDir(), "kvm")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a device that is not there: %v", err)
	}
	if err := Run(t.Context(), "/dev/null"); err == nil || !strings.Contains(err.Error(), "KVM_GET_API_VERSION") {
		t.Errorf("a device that is none: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
