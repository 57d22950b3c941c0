package planfile

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// Hardware describes hosts, disks and links for a simulation. Missing entries set no limit.
type Hardware struct {
	Version    int             `yaml:"version" required:"true" min:"1" max:"1" doc:"of this format: 1"`
	Hosts      map[string]Rate `yaml:"hosts" doc:"what each ESXi host gives to all that read from it; \"*\" is every other host"`
	Datastores map[string]Rate `yaml:"datastores" doc:"what each datastore gives, NAME@HOST of an ESXi that is a source itself; \"*\" is every other one"`
	Link       Rate            `yaml:"link" doc:"what all transfers have together: the network, or the storage here"`
	VM         Rate            `yaml:"vm" doc:"the most that one VM's transfer has"`
	Disk       Rate            `yaml:"disk" doc:"the most that one disk has"`
	Crowd      Percent         `yaml:"crowd" doc:"what each transfer beside the first costs of link, such as 0.1%"`
	Hold       Duration        `yaml:"hold" doc:"how long a VM has its slots before its transfer begins: a tool that starts a container first"`
	Uncertain  Percent         `yaml:"uncertain" doc:"uncertainty of the rates in both directions, for the bounds of the prediction"`
	PerHost    HostLimits      `yaml:"perHost" doc:"VMs and disks of a host at a time, in place of the plan's"`
	VMs        []Group         `yaml:"vms" doc:"VMs to simulate when there is no plan yet"`
}

// Group is VMs that are alike, spread over hosts in turn.
type Group struct {
	Count     int  `yaml:"count" required:"true" min:"1" max:"1000000" doc:"how many"`
	Hosts     int  `yaml:"hosts" min:"1" max:"100000" doc:"over how many hosts; the groups share them: esx1, esx2, …"`
	Disks     int  `yaml:"disks" min:"1" max:"1000" doc:"of each VM"`
	Allocated Size `yaml:"allocated" required:"true" doc:"bytes of each VM that hold data, of all its disks"`
}

// Percent is a part of a hundred: 0.5% is 0.005.
type Percent float64

const percentPattern = `^[0-9]{1,3}(\.[0-9]{1,6})?%$`

func (Percent) textForm() form { return form{pattern: percentPattern, example: "15%"} }

func (p *Percent) parseText(text string) error {
	v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !matchesPattern(percentPattern, text) || v >= 100 {
		return fmt.Errorf("want a part below a hundred, such as 15%%")
	}
	*p = Percent(v / 100)
	return nil
}

// LoadHardware reads such a file. It reports all errors at once.
func LoadHardware(path string) (*Hardware, error) { return loadFile(path, ParseHardware) }

// loadFile reads a file that parse understands.
func loadFile[T any](path string, parse func([]byte) (*T, Findings)) (*T, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fault.Wrap(fault.NotFound, err)
	case err != nil:
		return nil, fault.Wrap(fault.Invalid, err)
	}
	defer f.Close()                                         // only read
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1)) // of a file that is too long, just enough to show that
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err)
	}
	v, found := parse(text)
	if len(found) > 0 {
		first := found[0]
		return nil, fault.New(fault.Invalid, "%s:%d: %s%s", path, first.Line, first.Text, moreMistakes(len(found)-1)).WithHint("%s", first.Remedy)
	}
	return v, nil
}

func moreMistakes(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (and %d mistakes more)", n)
}

// ParseHardware reads its text as strictly as a plan's.
func ParseHardware(text []byte) (*Hardware, Findings) {
	d, root := decodeRoot(text)
	if root == nil {
		return nil, d.found
	}
	d.preset[reflect.TypeFor[Group]()] = reflect.ValueOf(Group{Hosts: 1, Disks: 1})
	h := &Hardware{}
	d.decodeValue(root, reflect.ValueOf(h).Elem(), "")
	d.found.Sort()
	return h, d.found
}

// Rates returns the rates of a simulation, multiplied by factor: 1 uses the values of the file.
func (h *Hardware) Rates(factor float64) map[string]int64 {
	rates := map[string]int64{}
	set := func(name string, r Rate) {
		if r > 0 {
			rates[name+"/rate"] = max(int64(math.Round(float64(r)*factor)), 1)
		}
	}
	for name, r := range h.Hosts {
		set("host:"+name, r)
	}
	for name, r := range h.Datastores {
		set("datastore:"+name, r)
	}
	set("link:all", h.Link)
	set("vm:*", h.VM)
	set("disk:*", h.Disk)
	return rates
}
