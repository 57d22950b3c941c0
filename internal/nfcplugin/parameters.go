package nfcplugin

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/suggest"
)

// Value is one parameter of the command line. Passwords are read from their files before.
type Value struct {
	Name  string // name of the parameter
	Value string // text after the equals sign
}

// Parameters are the values of all parameters.
type Parameters struct {
	Server      string          // name or address of the vCenter or ESXi
	Port        int             // port of its API
	User        string          // user name
	Password    esx.Secret      // password; empty if only Cookie is given
	Cookie      esx.Secret      // cookie of an open session; empty without one
	Thumbprint  []byte          // SHA-1 or SHA-256 of the server's certificate; empty without one
	KnownHosts  string          // file in which the certificate is pinned at the first use; empty without one
	Insecure    bool            // accept any certificate if there is neither Thumbprint nor KnownHosts
	VM          inventory.MoRef // reference of the VM
	File        inventory.Path  // descriptor of the disk
	Snapshot    inventory.MoRef // snapshot to read; empty for the disk of a VM that is off
	Transport   string          // nfc or https
	Connections int             // sessions or connections for the disk; 0 is the transport's default
	NFCPort     int             // port of NFC on the ESXi host; 0 is the ticket's
	Plain       bool            // read over NFC without encryption
}

const (
	transportNFC   = "nfc"   // value of the parameter transport
	transportHTTPS = "https" // value of the parameter transport

	mostConnections = 16 // highest value of the parameter connections
)

// setter stores the value of one parameter.
type setter struct {
	name string                          // name of the parameter
	set  func(*Parameters, string) error // stores a value that is not empty
}

// setters are those of all parameters, in the order of the list in messages.
var setters = []setter{
	{"server", func(p *Parameters, v string) error { p.Server = strings.Trim(v, "[]"); return nil }},
	{"vm", (*Parameters).setVM},
	{"file", (*Parameters).setFile},
	{"user", func(p *Parameters, v string) error { p.User = v; return nil }},
	{"password", func(p *Parameters, v string) error { p.Password = esx.Secret(v); return nil }},
	{"cookie", func(p *Parameters, v string) error { p.Cookie = esx.Secret(v); return nil }},
	{"thumbprint", (*Parameters).setThumbprint},
	{"known-hosts", func(p *Parameters, v string) error { p.KnownHosts = v; return nil }},
	{"insecure", func(p *Parameters, v string) error { return parseBool(v, &p.Insecure) }},
	{"port", func(p *Parameters, v string) error { return parseNumber(v, 65535, &p.Port) }},
	{"nfchostport", func(p *Parameters, v string) error { return parseNumber(v, 65535, &p.NFCPort) }},
	{"snapshot", func(p *Parameters, v string) error { p.Snapshot = inventory.MoRef(v); return nil }},
	{"transport", (*Parameters).setTransport},
	{"plain", func(p *Parameters, v string) error { return parseBool(v, &p.Plain) }},
	{"connections", func(p *Parameters, v string) error { return parseNumber(v, mostConnections, &p.Connections) }},
}

// ParameterNames returns the names of all parameters.
func ParameterNames() []string {
	var names []string
	for _, s := range setters {
		names = append(names, s.name)
	}
	return names
}

// ParseParameters checks the parameters of a command line.
func ParseParameters(values []Value) (Parameters, error) {
	p := Parameters{Port: 443, User: "root", Transport: transportNFC}
	given := map[string]bool{}
	for _, v := range values {
		i := slices.IndexFunc(setters, func(s setter) bool { return s.name == v.Name })
		switch {
		case i < 0:
			return p, unknownParameter(v.Name)
		case given[v.Name]:
			return p, fault.New(fault.Invalid, "%s= is given twice", v.Name)
		case v.Value == "":
			return p, fault.New(fault.Invalid, "%s= has no value", v.Name)
		}
		given[v.Name] = true
		if err := setters[i].set(&p, v.Value); err != nil {
			return p, fault.New(fault.Invalid, "%s=: %w", v.Name, err)
		}
	}
	for _, name := range []string{"server", "vm", "file"} {
		if !given[name] {
			return p, fault.New(fault.Invalid, "the parameter %s= is required", name)
		}
	}
	if !given["password"] && !given["cookie"] {
		return p, fault.New(fault.Invalid, "password=+FILE or cookie=+FILE is required")
	}
	return p, nil
}

// unknownParameter returns the error of a parameter that does not exist.
func unknownParameter(name string) error {
	names := ParameterNames()
	list := strings.Join(names, ", ")
	if near, found := suggest.Word(name, names); found {
		return fault.New(fault.Invalid, "the parameter %q is unknown; did you mean %s=? The parameters are %s", name, near, list)
	}
	return fault.New(fault.Invalid, "the parameter %q is unknown; the parameters are %s", name, list)
}

// setVM stores the reference of the VM.
func (p *Parameters) setVM(v string) error {
	ref, found := strings.CutPrefix(v, "moref=")
	if !found || ref == "" {
		return fmt.Errorf("%q is not a reference of a VM, such as vm=moref=vm-123", v)
	}
	p.VM = inventory.MoRef(ref)
	return nil
}

// setFile stores the path of the disk.
func (p *Parameters) setFile(v string) (err error) {
	p.File, err = inventory.ParsePath(v)
	return err
}

// setThumbprint stores a SHA-1 or SHA-256 sum in hex, with or without colons.
func (p *Parameters) setThumbprint(v string) error {
	sum, err := hex.DecodeString(strings.ReplaceAll(v, ":", ""))
	if err != nil || len(sum) != 20 && len(sum) != 32 {
		return fmt.Errorf("%q is not the SHA-1 or SHA-256 of a certificate: AA:BB:…, 20 or 32 bytes in hex", v)
	}
	p.Thumbprint = sum
	return nil
}

// parseBool stores a Boolean, in the words that nbdkit accepts.
func parseBool(v string, to *bool) error {
	switch strings.ToLower(v) {
	case "1", "true", "t", "yes", "y", "on":
		*to = true
	case "0", "false", "f", "no", "n", "off":
		*to = false
	default:
		return fmt.Errorf("%q is neither true nor false", v)
	}
	return nil
}

// setTransport stores the name of the transport.
func (p *Parameters) setTransport(v string) error {
	if v != transportNFC && v != transportHTTPS {
		return fmt.Errorf("%q is neither nfc nor https", v)
	}
	p.Transport = v
	return nil
}

// parseNumber stores a number from 1 to most.
func parseNumber(v string, most int, to *int) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		return fmt.Errorf("%q is not a number from 1 to %d", v, most)
	}
	*to = n
	return nil
}
