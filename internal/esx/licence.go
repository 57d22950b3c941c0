package esx

import (
	"context"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// freeEdition is the edition key of the free hypervisor, whose API is read-only
// (williamlam.com, 2011). It is unknown whether the free edition of 8.0U3e has the same
// key. A refused call reveals the restriction in this case; see Restricted.
const freeEdition = "esxBasic"

// FreeLicence reports whether an ESXi host has the free licence. It returns false if
// the licence is unknown, and for a vCenter, which cannot manage such hosts.
func (s *hostController) FreeLicence(ctx context.Context) bool {
	at := s.vim.ServiceContent.LicenseManager
	if s.about.VCenter || at == nil {
		return false
	}
	var m mo.LicenseManager
	if err := s.readProperties(ctx, moRef(at.Type, inventory.MoRef(at.Value)), &m, "licenses"); err != nil {
		s.cfg.Log.Debug("licence unknown", "err", classify(err))
		return false
	}
	for _, l := range m.Licenses {
		if !strings.HasPrefix(l.EditionKey, freeEdition) {
			return false
		}
	}
	return len(m.Licenses) > 0
}

// evaluation is the edition key of a licence for evaluation, and expires the property
// of the day on which it ends.
const (
	evaluation = "eval"           // edition key of an evaluation licence
	expires    = "expirationDate" // property with the date on which the evaluation ends
)

// EvaluationEnds returns the end of the evaluation licence of an ESXi host. It returns
// the zero time if the host has another licence or reports no date, and for a vCenter.
func (s *hostController) EvaluationEnds(ctx context.Context) time.Time {
	at := s.vim.ServiceContent.LicenseManager
	if s.about.VCenter || at == nil {
		return time.Time{}
	}
	var m mo.LicenseManager
	if err := s.readProperties(ctx, moRef(at.Type, inventory.MoRef(at.Value)), &m, "licenses", "evaluation"); err != nil {
		s.cfg.Log.Debug("licence unknown", "err", classify(err))
		return time.Time{}
	}
	if len(m.Licenses) != 1 || m.Licenses[0].EditionKey != evaluation {
		return time.Time{}
	}
	for _, p := range m.Evaluation.Properties {
		if ends, is := p.Value.(time.Time); is && p.Key == expires {
			return ends
		}
	}
	return time.Time{}
}

// Restricted reports whether the host's licence does not allow the call that failed
// with err.
func Restricted(err error) bool {
	_, is := vimFault(err).(*types.RestrictedVersion)
	return is
}
