package vsphere

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// HostState is how each host of the lab is kept. The zero value is a host as it is installed.
type HostState struct {
	Power       string           `json:"power,omitempty"`       // power policy: static (High Performance), dynamic (Balanced, default), low or custom
	Lockdown    string           `json:"lockdown,omitempty"`    // lockdownDisabled (default), lockdownNormal or lockdownStrict; logins are let in all the same
	Maintenance bool             `json:"maintenance,omitempty"` // the host is in maintenance mode
	Skew        Duration         `json:"skew,omitempty"`        // how far its clock is ahead of the lab's
	Settings    map[string]int64 `json:"settings,omitempty"`    // advanced settings, in place of defaults
}

var (
	powerPolicies = []string{"static", "dynamic", "low", "custom"}
	lockdownModes = []string{"lockdownDisabled", "lockdownNormal", "lockdownStrict"}
)

func (s *HostState) setDefaults() {
	setDefault(&s.Power, "dynamic")
	setDefault(&s.Lockdown, "lockdownDisabled")
}

func (s HostState) validate() error {
	if err := oneOf("power", s.Power, powerPolicies); err != nil {
		return err
	}
	return oneOf("lockdown", s.Lockdown, lockdownModes)
}

// firstCountingSessions is the first ESXi with a setting for the number of sessions (dumps of
// the settings of 6.7U3 and 7.0).
const firstCountingSessions = 7

// advancedSettings are those of a host that the lab's own rules follow.
func (c Config) advancedSettings() map[string]int64 {
	all := map[string]int64{
		"Security.AccountLockFailures": int64(c.Sessions.LockAfter),
		"Security.AccountUnlockTime":   int64(time.Duration(c.Sessions.LockFor) / time.Second),
	}
	first, _, _ := strings.Cut(c.Version, ".")
	if major, err := strconv.Atoi(first); err == nil && major >= firstCountingSessions {
		all["Config.HostAgent.vmacore.soap.maxSessionCount"] = int64(c.Sessions.Max)
	}
	for name, value := range c.Host.Settings {
		all[name] = value
	}
	return all
}

// addState applies the configuration to a host, and gives it a clock.
func (b *builder) addState(h *simulator.HostSystem) error {
	state := b.lab.cfg.Host
	clock := &dateTimeSystem{lab: b.lab}
	clock.Self = types.ManagedObjectReference{Type: "HostDateTimeSystem", Value: "dateTimeSystem-" + h.Self.Value}
	b.reg.Put(clock)
	b.ctx.WithLock(h, func() {
		h.ConfigManager.DateTimeSystem = &clock.Self
		h.Config.LockdownMode = types.HostLockdownMode(state.Lockdown)
		h.Config.PowerSystemInfo = &types.PowerSystemInfo{CurrentPolicy: types.HostPowerPolicy{
			Name: "PowerPolicy." + state.Power + ".name", ShortName: state.Power,
		}}
	})
	options, ok := b.reg.Get(*h.ConfigManager.AdvancedOption).(*simulator.OptionManager)
	if !ok {
		return fmt.Errorf("host %s has no advanced settings", h.Name)
	}
	set := &types.UpdateOptions{This: options.Self}
	for name, value := range b.lab.cfg.advancedSettings() {
		set.ChangedValue = append(set.ChangedValue, &types.OptionValue{Key: name, Value: value})
	}
	return faultOf(options.UpdateOptions(set))
}

// setMaintenance comes last: a host in maintenance mode switches no VM on, but may well have some that
// run while it is on its way there.
func (b *builder) setMaintenance() {
	for _, dc := range b.lab.datacenters {
		for _, h := range b.listHosts(dc) {
			b.ctx.WithLock(h, func() { h.Runtime.InMaintenanceMode = b.lab.cfg.Host.Maintenance })
		}
	}
}

// dateTimeSystem is a host's clock, which the simulator has none of.
type dateTimeSystem struct {
	mo.HostDateTimeSystem
	lab *Lab
}

// QueryDateTime returns the host's time.
func (s *dateTimeSystem) QueryDateTime(*types.QueryDateTime) soap.HasFault {
	now := s.lab.now().Add(time.Duration(s.lab.cfg.Host.Skew))
	return &methods.QueryDateTimeBody{Res: &types.QueryDateTimeResponse{Returnval: now.UTC()}}
}
