package convert

import (
	_ "embed"
	"slices"
)

// Files that install QEMU's guest agent. All of them are below /etc, which is on the root: /usr may be
// a separate file system.
const (
	agentScriptFile = "etc/decamp-guest-agent"                        // script that installs the agent
	agentUnitFile   = "etc/systemd/system/decamp-guest-agent.service" // unit that runs the script
	// file that enables the unit
	agentWantFile = "etc/systemd/system/multi-user.target.d/50-decamp-guest-agent.conf"
)

// agentScript installs the agent and removes these files, including itself.
//
//go:embed agent.sh
var agentScript string

// agentUnit runs the script. It starts after multi-user.target, which therefore does not wait for it.
// It has no Restart=, which systemd before 244 refuses for a oneshot, so the script itself retries.
const agentUnit = `# Made by decamp, which converted this guest. It removes itself.
[Unit]
Description=Install QEMU's guest agent, once
Wants=network-online.target
After=network-online.target multi-user.target
ConditionPathExists=/etc/decamp-guest-agent

[Service]
Type=oneshot
ExecStart=/bin/sh /etc/decamp-guest-agent
TimeoutStartSec=1h
`

// agentWant enables the unit like a symbolic link would, but needs no tool to remove it.
const agentWant = `# Made by decamp, which converted this guest. decamp-guest-agent.service removes it.
[Unit]
Wants=decamp-guest-agent.service
`

// installAgent adds files with which the guest installs QEMU's guest agent at its next boot, from its
// own package repositories. If that is not possible, it only adds a note.
func (c *conversion) installAgent() error {
	if c.hasAny("usr/bin/qemu-ga", "usr/sbin/qemu-ga") {
		return nil
	}
	if why := c.noAgent(); why != "" {
		c.addNote("qemu-guest-agent is not installed: %s; install it manually", why)
		return nil
	}
	// The script is written first: a unit without its script does nothing.
	for _, f := range []struct{ path, text, why string }{
		{agentScriptFile, agentScript, "installs qemu-guest-agent at the next boot, and removes itself"},
		{agentUnitFile, agentUnit, "starts the script that installs qemu-guest-agent; the script removes this file"},
		{agentWantFile, agentWant, "enables decamp-guest-agent.service, which removes this link"},
	} {
		if err := c.putFile(f.path, f.text, f.why); err != nil {
			return err
		}
	}
	c.GuestAgent = true
	return nil
}

// noAgent returns the reason why a guest cannot install the agent by itself; empty if it can.
func (c *conversion) noAgent() string {
	switch {
	case !c.hasSystemd():
		return "the guest has no systemd"
	case c.hasAny("ostree", "usr/bin/rpm-ostree", "etc/NIXOS", "usr/sbin/transactional-update"):
		return "the guest does not permit changes to its programs while it runs"
	case !c.hasAny("usr/bin/apt-get", "usr/bin/dnf", "usr/bin/yum", "usr/bin/zypper"):
		return "the guest does not have apt-get, dnf, yum or zypper"
	}
	return ""
}

// hasAny reports whether one of the paths exists.
func (c *conversion) hasAny(paths ...string) bool { return slices.ContainsFunc(paths, c.tree.hasPath) }
