package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab"
)

const labHelp = `
Run an emulated ESXi host or vCenter, to try decamp without touching production.

It serves the vSphere API and the datastores' /folder over HTTPS, with VMs whose disks
are generated or come from your own raw images, and stays until it is interrupted, which
is its good end. It can be as slow as a real host, and as broken: the control URL it
prints takes faults. It only reads the images it is given.

--disk may be repeated; the same name again adds a disk to that VM. A --config file says
everything there is to say; --print-config prints the one that the other flags amount to.
With --json one line tells scripts where to find everything, once the lab is ready.
`

const labExamples = `
decamp lab
decamp lab --listen 127.0.0.1:8443 --conn-rate 55M --datastore-rate 300M --latency 20ms
decamp lab --disk web01=debian.raw --disk web01=data.raw
decamp lab --vcenter --print-config > lab.json && decamp lab --config lab.json
`

// labOptions are the flags of decamp lab.
type labOptions struct {
	config        string
	listen        string
	vcenter       bool
	connRate      rateFlag
	datastoreRate rateFlag
	latency       time.Duration
	disks         []string
	printConfig   bool
}

func newLab(a *app) *cobra.Command {
	var o labOptions
	cmd := &cobra.Command{
		Use:         "lab",
		Short:       "Run an emulated ESXi or vCenter to try decamp on",
		Long:        text(labHelp),
		Example:     text(labExamples),
		Args:        takes(),
		Annotations: exits(exit{fault.Unreachable, "the address cannot be listened on"}),
		RunE:        a.logged(func(cmd *cobra.Command, _ []string) error { return a.lab(cmd.Context(), o) }),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.config, "config", "", "JSON `FILE` that describes the lab")
	f.StringVar(&o.listen, "listen", "", "`ADDR` to serve on (default 127.0.0.1:8443)")
	f.BoolVar(&o.vcenter, "vcenter", false, "a vCenter with two hosts in place of an ESXi")
	f.Var(&o.connRate, "conn-rate", "bytes a second of one connection, such as 55M")
	f.Var(&o.datastoreRate, "datastore-rate", "bytes a second of one datastore, such as 300M")
	f.DurationVar(&o.latency, "latency", 0, "`TIME` before each answer of /folder, such as 20ms")
	f.StringArrayVar(&o.disks, "disk", nil, "add a VM whose disk is a raw image: `NAME=FILE`")
	f.BoolVar(&o.printConfig, "print-config", false, "print the configuration and exit")
	_ = cmd.MarkFlagFilename("config", "json") // fails for unknown flags only
	return cmd
}

func (a *app) lab(ctx context.Context, o labOptions) error {
	cfg, err := o.labConfig()
	if err != nil {
		return err
	}
	if o.printConfig {
		text, err := json.MarshalIndent(cfg, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.out, "%s\n", text)
		return err
	}
	cfg.Log = a.Log
	return a.runLab(ctx, cfg)
}

// runLab serves until ctx ends. The password goes into a file of its own, so that it is
// given to decamp the way a real one should be.
func (a *app) runLab(ctx context.Context, cfg lab.Config) (err error) {
	dir, err := os.MkdirTemp("", "decamp-lab-")
	if err != nil {
		return err
	}
	defer closing(&err, func() error { return os.RemoveAll(dir) })
	l, err := lab.Start(ctx, cfg)
	if err != nil {
		return labFault(err)
	}
	defer closing(&err, l.Close)
	facts := labFactsOf(l, cfg, filepath.Join(dir, "password"))
	if err := os.WriteFile(facts.PasswordFile, []byte(l.Password()+"\n"), 0o600); err != nil {
		return err
	}
	if a.json {
		err = a.print(facts)
	} else {
		facts.write(a.out)
	}
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// labFault tells an address that is taken from a lab that cannot be.
func labFault(err error) error {
	var listen *net.OpError
	if errors.As(err, &listen) {
		return fault.New(fault.Unreachable, "%w", err).WithHint("give another address: --listen 127.0.0.1:0 takes a free port")
	}
	return fault.Wrap(fault.Invalid, err)
}

// labFacts is what one needs to know to use a lab.
type labFacts struct {
	URL          string   `json:"url"` // for decamp
	API          string   `json:"api"` // for others
	User         string   `json:"user"`
	PasswordFile string   `json:"passwordFile"`
	Fingerprint  string   `json:"fingerprint"`
	Control      string   `json:"control"`
	VMs          []string `json:"vms"`

	SSH []lab.SSHServer `json:"ssh"` // of each host
}

func labFactsOf(l *lab.Lab, cfg lab.Config, passwordFile string) labFacts {
	u := url.URL{Scheme: "esxi", User: url.User(l.User()), Host: l.Addr()}
	if cfg.VCenter {
		u.Scheme = "vcenter"
	}
	f := labFacts{
		URL: u.String(), API: l.URL(), User: l.User(), PasswordFile: passwordFile,
		Fingerprint: l.Fingerprint(), Control: l.ControlURL(), VMs: []string{}, SSH: l.SSHServers(),
	}
	for _, vm := range cfg.VMs {
		f.VMs = append(f.VMs, vm.Name)
	}
	return f
}

func (f labFacts) write(w io.Writer) {
	fmt.Fprintf(w, `The lab is ready. Interrupt it to end it.

  API          %s
  user         %s
  password     in %s
  SHA-256      %s
  control      %s
`, f.API, f.User, f.PasswordFile, f.Fingerprint, f.Control)
	for _, s := range f.SSH {
		fmt.Fprintf(w, "  SSH          %s, host %s; %s\n", cmp.Or(s.Addr, "on a free port"), s.Host, map[bool]string{true: "on", false: "off until TSM-SSH is started: --enable-ssh"}[s.Running])
		fmt.Fprintf(w, "  SSH key      %s\n", s.Fingerprint)
	}
	fmt.Fprintf(w, `
Try, in another terminal:

  export DECAMP_PASSWORD_FILE=%s
  decamp ls %s --fingerprint %s
`, f.PasswordFile, f.URL, f.Fingerprint)
	if len(f.VMs) > 0 {
		fmt.Fprintf(w, "  decamp migrate --to dir:/var/tmp %s %s\n", f.URL, shellArgument(f.VMs[0]))
	}
	fmt.Fprintf(w, "  curl -X POST %s/faults -d '{\"kind\":\"reset\",\"at\":1000000,\"count\":3}'   # break three answers\n", f.Control)
}

// labConfig is what the file says, changed by the flags.
func (o labOptions) labConfig() (cfg lab.Config, err error) {
	if o.config != "" {
		if cfg, err = lab.LoadConfig(o.config); err != nil {
			return cfg, fault.Wrap(fault.Invalid, err)
		}
	}
	set(&cfg.Addr, o.listen)
	set(&cfg.VCenter, o.vcenter)
	set(&cfg.Limits.ConnRate, lab.Bytes(o.connRate))
	set(&cfg.Limits.DatastoreRate, lab.Bytes(o.datastoreRate))
	set(&cfg.Limits.Latency, lab.Duration(o.latency))
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:8443"
		if cfg.SSH.Addr == "" {
			cfg.SSH.Addr = "127.0.0.1:8022" // taken when SSH is started
		}
	}
	if err := addDisks(&cfg, o.disks); err != nil {
		return cfg, err
	}
	if len(cfg.VMs) == 0 {
		cfg.VMs = labVMs()
	}
	return cfg, nil
}

// set changes v if a flag was given.
func set[T comparable](v *T, flag T) {
	var none T
	if flag != none {
		*v = flag
	}
}

// addDisks adds a VM for each name in NAME=FILE, with a disk for each file.
func addDisks(cfg *lab.Config, disks []string) error {
	for _, d := range disks {
		name, file, ok := strings.Cut(d, "=")
		if !ok || name == "" || file == "" {
			return fault.New(fault.Invalid, "--disk %s: want NAME=FILE", d)
		}
		file, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		if _, err := os.Stat(file); err != nil {
			return fault.New(fault.Invalid, "--disk %s: %w", d, err)
		}
		vm := labVM(cfg, name)
		vm.Disks = append(vm.Disks, lab.Disk{File: file})
	}
	return nil
}

func labVM(cfg *lab.Config, name string) *lab.VM {
	for i := range cfg.VMs {
		if cfg.VMs[i].Name == name {
			return &cfg.VMs[i]
		}
	}
	cfg.VMs = append(cfg.VMs, lab.VM{Name: name, ChangeTracking: true, NICs: []lab.NIC{{}}})
	return &cfg.VMs[len(cfg.VMs)-1]
}

// labVMs are what there is to see in a lab that nothing was said about: a VM that moves
// at once, one of several disks, and two that first need a hand.
func labVMs() []lab.VM {
	return []lab.VM{
		{Name: "web01", ChangeTracking: true, CPUs: 2, MemoryMB: 2048, NICs: []lab.NIC{{}},
			Disks: []lab.Disk{{Capacity: 2 << 30, Fill: 30, Seed: 1}}},
		{Name: "Files & Büro", Firmware: "efi", CPUs: 4, MemoryMB: 8192, NICs: []lab.NIC{{}, {Model: "e1000e"}},
			Disks: []lab.Disk{{Capacity: 4 << 30, Fill: 20, Seed: 2}, {Capacity: 16 << 30, Fill: 5, Seed: 3}}},
		{Name: "db01", PoweredOn: true, CPUs: 8, MemoryMB: 16384, NICs: []lab.NIC{{}},
			Disks: []lab.Disk{{Capacity: 8 << 30, Fill: 40, Seed: 4, Thick: true}}},
		{Name: "old01", Snapshots: []string{"before update"}, NICs: []lab.NIC{{Model: "e1000"}},
			Disks: []lab.Disk{{Capacity: 1 << 30, Fill: 50, Seed: 5, Controller: "lsilogic"}}},
	}
}
