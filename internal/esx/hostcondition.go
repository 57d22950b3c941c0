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

// Condition says how a host is kept. Lockdown modes are told since 6.0: an older host refuses the
// question, all of it.
func (s *hostController) Condition(ctx context.Context, host inventory.MoRef) (inventory.Condition, error) {
	var h mo.HostSystem
	ref := moRef("HostSystem", host)
	err := s.readProperties(ctx, ref, &h, "config.powerSystemInfo", "config.lockdownMode")
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

// Settings returns those of a host's advanced settings that it has and that are numbers. Which
// there are differs from version to version.
func (s *hostController) Settings(ctx context.Context, host inventory.MoRef, names ...string) (map[string]int64, error) {
	have, err := s.readSettings(ctx, host, names)
	if err != nil {
		return nil, fmt.Errorf("read settings of host %s: %w", host, classify(err))
	}
	return have, nil
}

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

// toInt64 reads a setting, which comes in the width that the host has it in.
func toInt64(val any) (int64, bool) {
	switch n := val.(type) {
	case int32:
		return int64(n), true
	case int64:
		return n, true
	}
	return 0, false
}

// HostTime is what a host's clock shows.
func (s *hostController) HostTime(ctx context.Context, host inventory.MoRef) (time.Time, error) {
	now, err := s.hostTime(ctx, host)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the clock of host %s: %w", host, classify(err))
	}
	return now, nil
}

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

// Sessions returns how many sessions the server has, this one included. To see those of
// others takes the privilege Sessions.TerminateSession.
func (s *hostController) Sessions(ctx context.Context) (int, error) {
	var m mo.SessionManager
	if err := s.readProperties(ctx, *s.vim.ServiceContent.SessionManager, &m, "sessionList"); err != nil {
		return 0, fmt.Errorf("count the sessions of %s: %w", s.end.addr, classify(err))
	}
	return len(m.SessionList), nil
}
