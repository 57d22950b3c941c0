package firewall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/decamp/decamp/internal/childenv"
	"github.com/decamp/decamp/internal/fault"
)

// Runner runs a command and returns its output. The error is exec.ErrNotFound if the
// command is not installed.
type Runner func(ctx context.Context, name string, args ...string) ([]byte, error)

// mostListed limits the size of a listing, in bytes.
const mostListed = 32 << 20

// Run is the Runner for this machine. The error contains the start of the command's
// error output.
func Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, complaint := &limited{most: mostListed}, &limited{most: 1 << 12}
	cmd.Env, cmd.Stdout, cmd.Stderr = childenv.Of(os.Environ()), out, complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out.Bytes(), nil
}

// limited is a buffer that fails after most bytes.
type limited struct {
	bytes.Buffer
	most int // limit in bytes
}

// Write is part of io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > l.most {
		return 0, fmt.Errorf("more than %d bytes", l.most)
	}
	return l.Buffer.Write(p)
}

// RuleSet contains the rules of this machine.
type RuleSet struct {
	Tools []string // tools that were run
	rules []*Rules // rules of each listing
}

// ReadRules reads the rules for IPv4 or, if six is true, for IPv6. The error is
// fault.NotFound if no tool is installed, and fault.Denied if the user may not read the
// rules.
func ReadRules(ctx context.Context, run Runner, six bool) (f RuleSet, err error) {
	saves, prefix := []string{"iptables-save", "iptables-nft-save", "iptables-legacy-save"}, "iptables"
	if six {
		saves, prefix = []string{"ip6tables-save", "ip6tables-nft-save", "ip6tables-legacy-save"}, "ip6tables"
	}
	told := map[string]bool{} // tables of nftables that iptables has a listing of
	read := map[string]bool{} // kinds of iptables
	for _, save := range saves {
		out, err := run(ctx, save)
		if errors.Is(err, exec.ErrNotFound) {
			continue
		}
		if err != nil {
			return f, deniedError(err)
		}
		kind := prefix + "-legacy"
		if bytes.Contains(out, []byte("(nf_tables)")) || bytes.Contains(out, []byte("by xtables-save")) {
			kind = prefix + "-nft"
		}
		// iptables-save and one of the other two are the same program.
		if len(bytes.TrimSpace(out)) == 0 || read[kind] {
			f.Tools = append(f.Tools, save)
			continue // the tool has no separate table, or is found under another name
		}
		read[kind] = true
		rules, err := ParseSave(out, kind)
		if err != nil {
			return f, fmt.Errorf("%s: %w", save, err)
		}
		f.Tools, f.rules = append(f.Tools, save), append(f.rules, rules)
		// nft also lists the tables that iptables-nft created.
		if kind == prefix+"-nft" {
			rules.addTables(told)
		}
	}
	return f.ofNFT(ctx, run, six, told)
}

// ofNFT adds the rules of nft, except for the tables in told, which iptables lists.
func (f RuleSet) ofNFT(ctx context.Context, run Runner, six bool, told map[string]bool) (RuleSet, error) {
	out, err := run(ctx, "nft", "-j", "list", "ruleset")
	switch {
	case errors.Is(err, exec.ErrNotFound) && len(f.Tools) == 0:
		return f, fault.New(fault.NotFound, "neither nft nor iptables-save is installed").WithHint("apt install nftables   # or: dnf install nftables")
	case errors.Is(err, exec.ErrNotFound):
		return f, nil
	case err != nil:
		return f, deniedError(err)
	}
	own := "ip"
	if six {
		own = "ip6"
	}
	rules, err := ParseNFT(out, func(family, table string) bool { return family == own && told[table] })
	if err != nil {
		return f, err
	}
	f.Tools, f.rules = append(f.Tools, "nft"), append(f.rules, rules)
	return f, nil
}

// deniedError returns fault.Denied with the commands to run as root.
func deniedError(err error) error {
	return fault.New(fault.Denied, "%w", err).WithHint("sudo nft list ruleset; sudo iptables-save")
}

// addTables adds the names of the listed tables to a set.
func (r *Rules) addTables(to map[string]bool) {
	for id := range r.chains {
		to[id.table] = true
	}
}

// Judge returns what stops a packet, or may stop it. Certain results come first.
func (f RuleSet) Judge(p Packet) (stops []Stop) {
	for _, r := range f.rules {
		stops = append(stops, r.Judge(p)...)
	}
	slices.SortStableFunc(stops, func(a, b Stop) int { return int(b.Verdict) - int(a.Verdict) })
	return stops
}
