package main

// groupNote is the annotation of flags that the help lists below the title of their group.
const groupNote = "decamp-group"

// flagGroups are the groups of the flags of a migration, in the order of the help.
var flagGroups = []struct {
	title string   // heading in the help
	flags []string // names of the flags
}{
	{"Target flags", []string{"to", "staging", "map", "domain-type", "format", "hardware", "start"}},
	{"Source flags", []string{"power-off", "force", "shutdown-wait", "password-file", "fingerprint", "enable-ssh", "ssh-host-key", "ssh-key", "ssh-user", "ssh-password-file", "ssh-port"}},
	{"Verification and test flags", []string{"spot", "source-hash", "paranoid", "trial", "expect"}},
	{"Conversion flags", []string{"engine", "virtio-win", "key-file", "appliance-kernel", "guest-agent"}},
	{"Warm migration flags", []string{"warm", "cutover", "interval", "downtime-budget", "boot-time"}},
	{"Transport flags", []string{"transport", "connections", "nfc-handles", "nfc-buffer", "nfc-buffers", "nfc-plain", "network",
		"landing", "landing-allow", "landing-copy", "landing-listen", "landing-portmap", "landing-memory", "advertise"}},
}
