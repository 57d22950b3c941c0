package kvm

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Whatever /dev/kvm does here, it is told in time, and a "no" says what did not work.
func TestKVMAnswers(t *testing.T) {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		t.Skip("no /dev/kvm here")
	}
	const limit = 500 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begin := time.Now()
	err := Run(ctx, "/dev/kvm")
	if took := time.Since(begin); took > 20*limit {
		t.Errorf("it took %v", took)
	}
	if err != nil && err.Error() == "" {
		t.Error("a no without a reason")
	}
	t.Logf("%v after %v", err, time.Since(begin))
}

func TestKVMThatIsNone(t *testing.T) {
	if err := Run(t.Context(), filepath.Join(t.TempDir(), "kvm")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a device that is not there: %v", err)
	}
	if err := Run(t.Context(), "/dev/null"); err == nil || !strings.Contains(err.Error(), "KVM_GET_API_VERSION") {
		t.Errorf("a device that is none: %v", err)
	}
}
