// Package platform has the checks of the platforms: libvirt, Proxmox, KubeVirt and OpenStack. The
// platforms themselves provide the checks, with their texts and remedies: those that refuse a VM before
// a copy. This package groups them by subject, and runs them without a VM.
package platform

import (
	"cmp"
	"context"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets/platform"
)

// Examined is a place as far as it is looked at here.
type Examined interface {
	// Examine looks at one aspect. There is nothing of the kind where it returns nothing.
	Examine(ctx context.Context, a platform.Aspect) []platform.Look
}

// Options say which place is looked at.
type Options struct {
	Name  string   // name of the platform, such as the value of --to
	Place Examined // platform; nil if it cannot be opened
}

const login = "place-login"

// aspects are the checks in the order of the report.
var aspects = []struct {
	of          platform.Aspect
	code, title string
	needs       []string
}{
	{platform.Login, login, "the place answers, is the one it should be, and lets us in", nil},
	{platform.Parts, "place-parts", "it has what VMs are made with, in a version that does", []string{login}},
	{platform.Storage, "place-storage", "disks have somewhere to go", []string{login}},
	{platform.Network, "place-network", "network cards have something to join", []string{login}},
	{platform.Rights, "place-rights", "the account may do all that a delivery does", []string{login, "place-storage", "place-network"}},
	{platform.Clock, "place-clock", "its clock and ours agree", []string{login}},
}

// Checks returns the checks of a place, their codes beginning with place-. Which there are does not depend
// on o.
func Checks(o Options) []doctor.Check {
	var checks []doctor.Check
	for _, a := range aspects {
		checks = append(checks, doctor.Check{Code: a.code, Title: a.title, Needs: a.needs, Run: func(ctx context.Context) []doctor.Finding {
			if o.Place == nil {
				return nil
			}
			var found []doctor.Finding
			for _, look := range o.Place.Examine(ctx, a.of) {
				found = append(found, o.finding(look, a.title))
			}
			return found
		}})
	}
	return checks
}

func (o Options) finding(l platform.Look, title string) doctor.Finding {
	f := doctor.Finding{On: o.Name, Seen: l.Seen}
	if l.On != "" {
		f.On += ": " + l.On
	}
	if l.Err == nil {
		return f
	}
	f.Status, f.Seen, f.Want = status(l), l.Err.Error(), title
	f.Remedy = cmp.Or(fault.HintOf(l.Err), "try again; if it stays, look at the place by its own tools")
	return f
}

// status is how bad a look is. Who does not answer at all fails every VM; who lets us in and then does not
// answer a question may do so the next time.
func status(l platform.Look) doctor.Status {
	switch {
	case l.Mild:
		return doctor.Warning
	case fault.Is(l.Err, fault.Transient), fault.Is(l.Err, fault.Canceled):
		return doctor.Unknown
	}
	return doctor.Failure
}
