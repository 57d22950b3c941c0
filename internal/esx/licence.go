package esx

import (
	"context"
	"strings"

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
func (s *Session) FreeLicence(ctx context.Context) bool {
	at := s.vim.ServiceContent.LicenseManager
	if s.about.VCenter || at == nil {
		return false
	}
	var m mo.LicenseManager
	if err := s.properties(ctx, reference(at.Type, inventory.MoRef(at.Value)), &m, "licenses"); err != nil {
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

// Restricted reports whether err is a call that the host's licence does not allow.
func Restricted(err error) bool {
	_, is := vimFault(err).(*types.RestrictedVersion)
	return is
}
