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

// HostState is the configuration of each host. The zero value is a fresh installation.
type HostState struct {
	Power       string           `json:"power,omitempty"`       // power policy: static (High Performance), dynamic (Balanced, default), low or custom
	Lockdown    string           `json:"lockdown,omitempty"`    // lockdownDisabled (default), lockdownNormal or lockdownStrict; logins are let in all the same
	Maintenance bool             `json:"maintenance,omitempty"` // whether the host is in maintenance mode
	Skew        Duration         `json:"skew,omitempty"`        // how far its clock is ahead of the emulator's
	Settings    map[string]int64 `json:"settings,omitempty"`    // advanced settings that replace or extend the defaults
}

var (
	powerPolicies = []string{"static", "dynamic", "low", "custom"} // powerPolicies are the values of HostState.Power.
	// lockdownModes are the values of HostState.Lockdown.
	lockdownModes = []string{"lockdownDisabled", "lockdownNormal", "lockdownStrict"}
)

// setDefaults sets power policy and lockdown mode.
func (s *HostState) setDefaults() {
	setDefault(&s.Power, "dynamic")
	setDefault(&s.Lockdown, "lockdownDisabled")
}

// validate returns an error for an unknown policy or mode.
func (s HostState) validate() error {
	if err := oneOf("power", s.Power, powerPolicies); err != nil {
		return err
	}
	return oneOf("lockdown", s.Lockdown, lockdownModes)
}

// firstCountingSessions is the first major version of ESXi with a setting for the number of sessions
// (dumps of the settings of 6.7U3 and 7.0).
const firstCountingSessions = 7

// advancedSettings returns the settings of a host that correspond to Sessions, and those of HostState.
func (c Config) advancedSettings() map[string]int64 {
	all := map[string]int64{
		"Security.AccountLockFailures": int64(c.Sessions.LockAfter),
		"Security.AccountUnlockTime":   int64(time.Duration(c.Sessions.LockFor) / time.Second),
	}
	first, _, _ := strings.Cut(c.Version, ".")
	if major, err := strconv.Atoi(first); err == nil && major >= firstCountingSessions {
		all["Config.HostAgent.vmacore.soap.maxSessionCount"] = int64(c.Sessions.Max)
	}
	for name, value := range c.Host.Settings { // these take precedence
		all[name] = value
	}
	return all
}

// addState applies the configuration to a host and adds its clock.
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

// setMaintenance sets maintenance mode after all VMs are powered on: a host in maintenance mode starts
// no VM, but VMs may run while it enters the mode.
func (b *builder) setMaintenance() {
	for _, dc := range b.lab.datacenters {
		for _, h := range b.listHosts(dc) {
			b.ctx.WithLock(h, func() { h.Runtime.InMaintenanceMode = b.lab.cfg.Host.Maintenance })
		}
	}
}

// A dateTimeSystem is a host's clock, which the simulator lacks.
type dateTimeSystem struct {
	mo.HostDateTimeSystem
	lab *Lab // emulator with the clock
}

// QueryDateTime returns the host's time.
func (s *dateTimeSystem) QueryDateTime(*types.QueryDateTime) soap.HasFault {
	now := s.lab.now().Add(time.Duration(s.lab.cfg.Host.Skew))
	return &methods.QueryDateTimeBody{Res: &types.QueryDateTimeResponse{Returnval: now.UTC()}}
}
