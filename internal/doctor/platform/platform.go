// Package platform has the checks of the platforms: libvirt, Proxmox, KubeVirt and
// OpenStack. The platforms themselves provide the checks, with their texts and
// remedies: those that refuse a VM before a copy. This package groups them by subject,
// and runs them without a VM.
package platform

import (
	"cmp"
	"context"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets/platform"
)

// Examiner is a platform that can be examined without a VM.
type Examiner interface {
	// Examine examines one aspect. It returns nil if the platform has nothing of the
	// kind.
	Examine(ctx context.Context, a platform.Aspect) []platform.AspectResult
}

// Options select the platform to examine.
type Options struct {
	Name     string   // name of the platform, such as the value of --to
	Platform Examiner // platform; nil if it cannot be opened
}

// login is the code of the check that all others need.
const login = "target-login"

// aspects lists the checks in the order of the report.
var aspects = []struct {
	of          platform.Aspect
	code, title string
	needs       []string
}{
	{platform.Login, login, "the target is reachable, has the expected identity and accepts the credentials", nil},
	{platform.Parts, "target-features", "the target has the required version and features", []string{login}},
	{platform.Storage, "target-storage", "the target has the storage of the disks", []string{login}},
	{platform.Network, "target-network", "the target has the networks of the VMs", []string{login}},
	{platform.Rights, "target-privilege", "the user has the privileges for a delivery", []string{login, "target-storage", "target-network"}},
	{platform.Clock, "target-clock", "the clocks of the target and this machine agree", []string{login}},
}

// Checks returns the checks of a platform. Their codes begin with target-. The list does
// not depend on o.
func Checks(o Options) []doctor.Check {
	var checks []doctor.Check
	for _, a := range aspects {
		checks = append(checks, doctor.Check{Code: a.code, Title: a.title, Needs: a.needs, Run: func(ctx context.Context) []doctor.Finding {
			if o.Platform == nil {
				return nil
			}
			var found []doctor.Finding
			for _, look := range o.Platform.Examine(ctx, a.of) {
				found = append(found, o.toFinding(look, a.title))
			}
			return found
		}})
	}
	return checks
}

// toFinding converts the result for one object of the platform. A result without an
// error is OK.
func (o Options) toFinding(l platform.AspectResult, title string) doctor.Finding {
	f := doctor.Finding{On: o.Name, Found: l.State}
	// The object is part of the platform, such as a storage pool.
	if l.Object != "" {
		f.On += ": " + l.Object
	}
	if l.Err == nil {
		return f
	}
	f.Status, f.Found, f.Want = statusOf(l), l.Err.Error(), title
	f.Remedy = cmp.Or(fault.HintOf(l.Err), "try again; if the error persists, check the target with its own tools")
	return f
}

// statusOf returns the severity of a result. A platform that refuses the login fails
// each VM. A platform that accepts the login, but does not answer a query, may answer
// the next time: the result is Unknown.
func statusOf(l platform.AspectResult) doctor.Status {
	switch {
	case l.WarningOnly:
		return doctor.Warning
	case fault.Is(l.Err, fault.Transient), fault.Is(l.Err, fault.Canceled):
		return doctor.Unknown
	}
	return doctor.Failure
}
