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

// That a VM's variables cannot be read ends no run: it is told, and the boot entry is made of what is on the disk.
func TestFirmwareThatIsNotRead(t *testing.T) {
	loader := efi.Entry{Label: "debian", File: `\EFI\debian\grubx64.efi`, Attributes: efi.Active}
	reports := []guest.Report{{Loaders: []efi.Entry{loader}}}
	for name, tt := range map[string]struct {
		firmware inventory.Firmware
		file     string // the VM's
		data     string
		err      error
		warned   string
		entries  int
	}{
		"a BIOS":         {inventory.BIOS, "web/web.nvram", "", errors.New("nobody asks"), "", 0},
		"no file":        {inventory.EFI, "", "", errors.New("nobody asks"), "", 1},
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
		told := strings.Join(warnings, "; ")
		if len(r.Record.Facts.Warnings) > 0 {
			told += r.Record.Facts.Warnings[0].Text
		}
		if (tt.warned == "") != (told == "") || !strings.Contains(told, tt.warned) {
			t.Errorf("%s: told %q", name, told)
		}
	}
}
