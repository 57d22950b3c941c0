// Command bootvm boots the VM of a libvirt domain XML and prints the report of its guest. Flags set the expected report.
// If the report differs, the exit status is 1.
//
//	bootvm -mac 00:50:56:00:00:01 -uuid 564d… -driver vmw_pvscsi domain.xml
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/decamp/decamp/test/boot"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bootVM(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bootvm:", err)
		os.Exit(1)
	}
}

// bootVM runs the command with the arguments. It returns an error if the report differs from a flag.
func bootVM(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bootvm", flag.ContinueOnError)
	deadline := flags.Duration("deadline", 20*time.Minute, "time limit for the boot of the guest")
	log := flags.String("log", "", "write the output of the guest to this `file`")
	mac := flags.String("mac", "", "expected MAC address of the first network card")
	uuid := flags.String("uuid", "", "expected SMBIOS UUID")
	driver := flags.String("driver", "", "expected driver of the root disk")
	card := flags.String("card", "", "expected driver of the first network card")
	firmware := flags.String("firmware", "", "expected firmware: bios or efi")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("one domain XML file is needed, %d were given", flags.NArg())
	}
	m, err := boot.Domain(ctx, flags.Arg(0), boot.Options{Deadline: *deadline, Log: *log})
	if err != nil {
		return err
	}
	first := append(m.Cards, boot.Card{})[0] // empty if the guest has no card
	fmt.Printf("booted: disk %s on %s, %s %s, uuid %s, firmware %s, boot %d of this disk, up after %v\n",
		m.Disk, m.Driver, first.Driver, first.MAC, m.UUID, m.Firmware, m.Boots, m.Uptime)
	return errors.Join(
		checkReported("MAC", first.MAC, *mac),
		checkReported("UUID", m.UUID, *uuid),
		checkReported("disk driver", m.Driver, *driver),
		checkReported("network card driver", first.Driver, *card),
		checkReported("firmware", m.Firmware, *firmware),
	)
}

// checkReported compares a reported value with a flag, ignoring case. An empty flag accepts any value.
func checkReported(what, got, want string) error {
	if want == "" || strings.EqualFold(got, want) {
		return nil
	}
	return fmt.Errorf("%s is %s, expected %s", what, got, want)
}
