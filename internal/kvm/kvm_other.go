//go:build !amd64

package kvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
)

// Run only opens the device. There is no test guest for this architecture, so the error
// is errors.ErrUnsupported.
func Run(_ context.Context, device string) error {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_ = f.Close() // nothing was done with it
	return fmt.Errorf("run a guest for %s: %w", runtime.GOARCH, errors.ErrUnsupported)
}
