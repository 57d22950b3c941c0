package migrate

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
)

// A run continues if the firmware variables of its VM cannot be read: it warns, and creates the boot entry from the disk.
func TestUnreadableFirmwareVariablesCauseWarning(t *testing.T) {
	loader := efi.Entry{Label: "debian", File: `\EFI\debian\grubx64.efi`, Attributes: efi.Active}
	reports := []guest.Report{{Loaders: []efi.Entry{loader}}}
	for name, tt := range map[string]struct {
		firmware inventory.Firmware
		file     string // NVRAM file of the VM
		data     string
		err      error
		warned   string
		entries  int
	}{
		"a BIOS":         {inventory.BIOS, "web/web.nvram", "", errors.New("must not be read"), "", 0},
		"no file":        {inventory.EFI, "", "", errors.New("must not be read"), "", 1},
		"never on":       {inventory.EFI, "web/web.nvram", "", nil, "", 1},
		"out of reach":   {inventory.EFI, "web/web.nvram", "", errors.New("403 Forbidden"), "403 Forbidden", 1},
		"another format": {inventory.EFI, "web/web.nvram", "BIOS", nil, "MRVN", 1},
		"nothing held":   {inventory.EFI, "web/web.nvram", "MRVN\x01\x00\x00\x00", nil, "", 1},
	} {
		var warnings []string
		o := Options{Notify: func(e journal.Event) {
			if e.Warning != nil {
				warnings = append(warnings, e.Warning.Text)
			}
		}}
		r := unitRun(journal.Plan{}, Facts{VM: &inventory.VM{Firmware: tt.firmware, NVRAM: inventory.Path{File: tt.file}}}, Environment{}, Permit{}, o)
		r.Env.NVRAM = func(context.Context, *inventory.VM) ([]byte, error) { return []byte(tt.data), tt.err }
		state, err := readFirmware(t.Context(), r, reports)
		n := 0
		if state != nil {
			n = len(state.Entries)
		}
		if err != nil || n != tt.entries {
			t.Errorf("%s: %+v, %v", name, state, err)
		}
		text := strings.Join(warnings, "; ")
		if len(r.Record.Facts.Warnings) > 0 {
			text += r.Record.Facts.Warnings[0].Text
		}
		if (tt.warned == "") != (text == "") || !strings.Contains(text, tt.warned) {
			t.Errorf("%s: warnings %q, want %q", name, text, tt.warned)
		}
	}
}
