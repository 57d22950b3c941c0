package esx

import (
	"context"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// freeEdition is the edition key of the free hypervisor, whose API reads and changes nothing
// (williamlam.com, 2011). Whether the one of 8.0U3e has the same is not known: a call that is
// refused tells then, see Restricted.
const freeEdition = "esxBasic"

// FreeLicence reports whether an ESXi host is licensed as the free hypervisor. False also means
// that it cannot be found out. A vCenter has no such hosts.
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

// evaluation is the edition key of a licence for evaluation, and expires the property of the day on
// which it ends.
const (
	evaluation = "eval"
	expires    = "expirationDate"
)

// EvaluationEnds is when the evaluation licence of an ESXi host ends. Zero means that it has another
// licence, or does not tell; a vCenter does not.
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

// Restricted reports whether err is a call that the host's licence does not allow.
func Restricted(err error) bool {
	_, is := vimFault(err).(*types.RestrictedVersion)
	return is
}
