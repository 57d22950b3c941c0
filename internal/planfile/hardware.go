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

// Hardware describes hosts, disks and links for a simulation. A missing entry sets no limit.
type Hardware struct {
	// always 1
	Version int `yaml:"version" required:"true" min:"1" max:"1" doc:"version of the file format: 1"`
	// bytes per second by host name
	Hosts map[string]Rate `yaml:"hosts" doc:"rate of each ESXi host for all its readers together; \"*\" is every other host"`
	// bytes per second by datastore name
	Datastores map[string]Rate `yaml:"datastores" doc:"rate of each datastore; NAME@HOST for the datastore of an ESXi source; \"*\" is every other datastore"`
	// bytes per second; 0: unlimited
	Link Rate `yaml:"link" doc:"rate of all transfers together: the network, or the target storage"`
	VM   Rate `yaml:"vm" doc:"maximum rate of one VM's transfer"` // bytes per second; 0: unlimited
	Disk Rate `yaml:"disk" doc:"maximum rate of one disk"`        // bytes per second; 0: unlimited
	// fraction of Link; 0: none
	Crowd Percent `yaml:"contention" doc:"part of link that each transfer after the first costs, such as 0.1%"`
	// 0: transfers start at once
	Hold Duration `yaml:"startDelay" doc:"time from the grant of a VM's slots to the start of its transfer, for example for a tool that starts a container first"`
	// 0: the result has no bounds
	Uncertain Percent `yaml:"uncertainty" doc:"uncertainty of the rates in both directions, for the bounds of the prediction"`
	// 0: limits of the plan or the defaults
	PerHost HostLimits `yaml:"perHost" doc:"VMs and disks of a host at a time; replaces the limits of the plan"`
	VMs     []Group    `yaml:"vms" doc:"VMs to simulate without a plan"` // may be empty if there is a plan
}

// Group describes VMs of the same size, which are distributed over hosts in turn.
type Group struct {
	Count int `yaml:"count" required:"true" min:"1" max:"1000000" doc:"number of VMs"` // at least 1
	// default 1
	Hosts     int  `yaml:"hosts" min:"1" max:"100000" doc:"number of hosts that have the VMs; all groups use the same hosts: esx1, esx2, …"`
	Disks     int  `yaml:"disks" min:"1" max:"1000" doc:"number of disks of each VM"`                    // default 1
	Allocated Size `yaml:"allocated" required:"true" doc:"allocated bytes of each VM, in all its disks"` // bytes
}

// Percent is a fraction that is written as a percentage: 0.5% is 0.005.
type Percent float64

// percentPattern permits up to six decimals.
const percentPattern = `^[0-9]{1,3}(\.[0-9]{1,6})?%$`

// textForm requires a percent sign.
func (Percent) textForm() form { return form{pattern: percentPattern, example: "15%"} }

// parseText accepts percentages below 100.
func (p *Percent) parseText(text string) error {
	v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !matchesPattern(percentPattern, text) || v >= 100 {
		return fmt.Errorf("want a percentage below 100%%, such as 15%%")
	}
	*p = Percent(v / 100)
	return nil
}

// LoadHardware reads a file with a description of hardware. The error has the first mistake and the
// number of the others.
func LoadHardware(path string) (*Hardware, error) { return loadFile(path, ParseHardware) }

// loadFile reads a file and parses it. It returns fault.NotFound for a missing file, and fault.Invalid
// with the first mistake.
func loadFile[T any](path string, parse func([]byte) (*T, Findings)) (*T, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fault.Wrap(fault.NotFound, err)
	case err != nil:
		return nil, fault.Wrap(fault.Invalid, err)
	}
	defer f.Close()                                        // only read
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1)) // one byte over the limit shows that the file is too large
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

// moreMistakes returns " (and n more mistakes)"; empty for 0.
func moreMistakes(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " (and 1 more mistake)"
	}
	return fmt.Sprintf(" (and %d more mistakes)", n)
}

// ParseHardware parses the text of such a file as strictly as the text of a plan.
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
