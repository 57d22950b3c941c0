package main

import (
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/internal/units"
)

// bootError returns fault.Unsupported if a VM did not boot; otherwise nil.
func bootError(name string, r testboot.Report) error {
	if r.Booted() {
		return nil
	}
	return fault.New(fault.Unsupported, "%s does not boot (%s): %s", name, r.Verdict, r.Reason).WithHint("%s", r.Remedy)
}

// writeTrial prints the report of a boot.
func writeTrial(out *output, r testboot.Report) error {
	if out.json {
		return out.printJSON(r)
	}
	if r.Booted() {
		fmt.Fprintf(out, "It booted after %s%s: %s\n", units.Duration(r.Elapsed), acceleratorText(r), fault.Printable(r.Reason))
	}
	for _, t := range r.Network {
		fmt.Fprintf(out, "network card %s: %s\n", t.MAC, fault.Printable(t.String()))
	}
	if r.Agent != nil && !strings.Contains(r.Reason, r.Agent.String()) {
		fmt.Fprintf(out, "guest agent: %s\n", fault.Printable(r.Agent.String()))
	}
	for _, s := range r.Missing {
		fmt.Fprintf(out, "Warning: %s\n", fault.Printable(s.String()))
	}
	for _, less := range r.Differences {
		fmt.Fprintf(out, "different from the domain: %s\n", less)
	}
	if r.Screen != "" {
		fmt.Fprintf(out, "screen: %s\n", r.Screen)
	}
	if r.Serial != "" {
		fmt.Fprintf(out, "serial port: %s\n", r.Serial)
	}
	return nil
}

// acceleratorText describes how the VM was executed: on KVM or emulated, with the reason.
func acceleratorText(r testboot.Report) string {
	switch {
	case r.Accel == testboot.KVM:
		return " on KVM"
	case r.NoKVM != "":
		return fmt.Sprintf(" emulated (KVM cannot be used: %s)", fault.Printable(r.NoKVM))
	}
	return " emulated"
}
