// Command bootvm boots the VM of a libvirt domain XML and prints what its guest reports.
// Flags set the expected report; a difference is exit status 1.
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
	deadline := flags.Duration("deadline", 20*time.Minute, "limit of the time that the guest takes")
	log := flags.String("log", "", "write what the guest printed to this `file`")
	mac := flags.String("mac", "", "the first network card's MAC must be this")
	uuid := flags.String("uuid", "", "the SMBIOS UUID must be this")
	driver := flags.String("driver", "", "the root disk's driver must be this")
	card := flags.String("card", "", "the first network card's driver must be this")
	firmware := flags.String("firmware", "", "the firmware must be this: bios or efi")
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
