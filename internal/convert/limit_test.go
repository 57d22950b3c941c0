package convert

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/convert/overlay"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/bombs"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/initramfs"
)

// bombDisk returns a disk of package bombs and its report.
func bombDisk(t *testing.T, name string, kind guest.FileSystem) Disk {
	t.Helper()
	for _, b := range bombs.All() {
		if b.Name == name {
			return Disk{overlay.New(b.Disk(), 1<<20), guest.Report{Table: guest.None, WholeDisk: kind}}
		}
	}
	t.Fatalf("no bomb %q", name)
	return Disk{}
}

// A conversion that reaches a limit fails with the reason and writes nothing.
func TestConversionFailsAtLimit(t *testing.T) {
	d := bombDisk(t, "XFS: a folder that reads one block over and over", guest.XFS)
	limits := budget.Conversion()
	limits.Read = 256 << 20 // less than one search of the root folder reads
	b, cancel := budget.New(t.Context(), limits)
	defer cancel()
	_, err := onLayers(t.Context(), b, []Disk{d}, Options{Now: time.Now})
	if err = orLimit(err); !fault.Is(err, fault.Unsupported) || fault.HintOf(err) != useCompat || !strings.Contains(err.Error(), "not examined: more than 256 MiB would be read") {
		t.Error(err)
	}
	if len(d.Overlay.Changed()) > 0 {
		t.Error("the overlay has changes")
	}
}

// The limits of a conversion also apply to the initramfs of the guest.
func TestLimitsApplyToInitramfs(t *testing.T) {
	var w initramfs.Writer
	w.File("large", make([]byte, 64<<20))
	var z bytes.Buffer
	packer := gzip.NewWriter(&z)
	if _, err := packer.Write(w.Bytes()); err != nil || packer.Close() != nil {
		t.Fatal(err)
	}
	_, err := readInitramfs(budgettest.New(t), z.Bytes(), kernel{release: release})
	var limit *budget.Error
	if !errors.As(err, &limit) || !strings.Contains(limit.Cause, "packed into") {
		t.Error(err)
	}
}
