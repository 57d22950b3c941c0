package esx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// Condition returns power policy and lockdown mode of a host. Hosts before 6.0 have no
// lockdown mode and refuse the whole query, which is then repeated without it.
func (s *hostController) Condition(ctx context.Context, host inventory.MoRef) (inventory.Condition, error) {
	var h mo.HostSystem
	ref := moRef("HostSystem", host)
	err := s.readProperties(ctx, ref, &h, "config.powerSystemInfo", "config.lockdownMode")
	// The fault does not name the property. lockdownMode is the newer one.
	if _, old := vimFault(err).(*types.InvalidProperty); old {
		err = s.readProperties(ctx, ref, &h, "config.powerSystemInfo")
	}
	if err != nil {
		return inventory.Condition{}, fmt.Errorf("read the condition of host %s: %w", host, classify(err))
	}
	var c inventory.Condition
	if h.Config == nil {
		return c, nil
	}
	c.Lockdown = string(h.Config.LockdownMode)
	if p := h.Config.PowerSystemInfo; p != nil {
		c.Power = p.CurrentPolicy.ShortName
	}
	return c, nil
}

// Settings returns the numeric advanced settings of a host. Settings that the host does
// not have are not in the map; they differ between versions.
func (s *hostController) Settings(ctx context.Context, host inventory.MoRef, names ...string) (map[string]int64, error) {
	have, err := s.readSettings(ctx, host, names)
	if err != nil {
		return nil, fmt.Errorf("read settings of host %s: %w", host, classify(err))
	}
	return have, nil
}

// readSettings reads the settings with one call each.
func (s *hostController) readSettings(ctx context.Context, host inventory.MoRef, names []string) (map[string]int64, error) {
	var h mo.HostSystem
	if err := s.readProperties(ctx, moRef("HostSystem", host), &h, "configManager.advancedOption"); err != nil {
		return nil, err
	}
	if h.ConfigManager.AdvancedOption == nil {
		return nil, errors.New("the host has no settings")
	}
	have := map[string]int64{}
	for _, name := range names {
		res, err := methods.QueryOptions(ctx, s, &types.QueryOptions{This: *h.ConfigManager.AdvancedOption, Name: name})
		// A query for a name may also return settings below it, so the key is compared.
		if _, unknown := vimFault(err).(*types.InvalidName); unknown {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, o := range res.Returnval {
			if n, ok := toInt64(o.GetOptionValue().Value); ok && o.GetOptionValue().Key == name {
				have[name] = n
			}
		}
	}
	return have, nil
}

// toInt64 converts the value of a setting. Hosts return 32 or 64 bits, depending on the
// setting. It returns false for values that are not numbers.
func toInt64(val any) (int64, bool) {
	switch n := val.(type) {
	case int32:
		return int64(n), true
	case int64:
		return n, true
	}
	return 0, false
}

// HostTime returns the time of a host's clock, without the network latency.
func (s *hostController) HostTime(ctx context.Context, host inventory.MoRef) (time.Time, error) {
	now, err := s.hostTime(ctx, host)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the clock of host %s: %w", host, classify(err))
	}
	return now, nil
}

// hostTime reads the clock from the host's date-time system.
func (s *hostController) hostTime(ctx context.Context, host inventory.MoRef) (time.Time, error) {
	var h mo.HostSystem
	if err := s.readProperties(ctx, moRef("HostSystem", host), &h, "configManager.dateTimeSystem"); err != nil {
		return time.Time{}, err
	}
	if h.ConfigManager.DateTimeSystem == nil {
		return time.Time{}, errors.New("the host does not show its clock")
	}
	res, err := methods.QueryDateTime(ctx, s, &types.QueryDateTime{This: *h.ConfigManager.DateTimeSystem})
	if err != nil {
		return time.Time{}, err
	}
	return res.Returnval, nil
}

// Sessions returns the number of sessions of the server, including this one. Without
// the privilege Sessions.TerminateSession it counts only the user's own sessions.
func (s *hostController) Sessions(ctx context.Context) (int, error) {
	var m mo.SessionManager
	if err := s.readProperties(ctx, *s.vim.ServiceContent.SessionManager, &m, "sessionList"); err != nil {
		return 0, fmt.Errorf("count the sessions of %s: %w", s.end.addr, classify(err))
	}
	return len(m.SessionList), nil
}
