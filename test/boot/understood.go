package boot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// understood lists the elements of a domain that this package acts on, or that cannot prevent a guest
// from booting, with their attributes. Values are checked where they are used. Elements below
// domain/metadata are not checked.
const understood = `
domain type
domain/name
domain/uuid
domain/title
domain/description
domain/metadata
domain/memory unit
domain/currentMemory unit
domain/vcpu placement
domain/sysinfo type
domain/sysinfo/system
domain/sysinfo/system/entry name
domain/os firmware
domain/os/type arch machine
domain/os/firmware
domain/os/loader type readonly secure
domain/os/nvram template
domain/os/firmware/feature enabled name
domain/os/smbios mode
domain/features
domain/features/acpi
domain/features/apic
domain/features/smm state
domain/features/vmport state
domain/cpu mode check
domain/cpu/topology sockets dies cores threads
domain/clock offset
domain/clock/timer name tickpolicy present
domain/on_poweroff
domain/on_reboot
domain/on_crash
domain/devices
domain/devices/disk type device
domain/devices/disk/driver name type cache io discard detect_zeroes
domain/devices/disk/source file
domain/devices/disk/target dev bus
domain/devices/disk/readonly
domain/devices/disk/serial
domain/devices/disk/boot order
domain/devices/disk/address type controller bus target unit
domain/devices/controller type index model
domain/devices/interface type
domain/devices/interface/mac address
domain/devices/interface/source network bridge
domain/devices/interface/model type
domain/devices/interface/link state
domain/devices/interface/boot order
domain/devices/serial type
domain/devices/serial/target type port
domain/devices/serial/target/model name
domain/devices/console type
domain/devices/console/target type port
domain/devices/channel type
domain/devices/channel/source mode
domain/devices/channel/target type name
domain/devices/graphics type port autoport listen
domain/devices/graphics/listen type address
domain/devices/video
domain/devices/video/model type
domain/devices/memballoon model
`

// checkUnderstood returns an error that names the first element or attribute of the document that is
// not in the list.
func checkUnderstood(doc []byte) error {
	known := map[string][]string{}
	for line := range strings.Lines(understood) {
		if words := strings.Fields(line); len(words) > 0 {
			known[words[0]] = words[1:]
		}
	}
	var path []string
	d := xml.NewDecoder(bytes.NewReader(doc))
	for {
		token, err := d.Token()
		switch t := token.(type) {
		case xml.StartElement:
			path = append(path, t.Name.Local)
			if err := checkElement(known, strings.Join(path, "/"), t.Attr); err != nil {
				return err
			}
		case xml.EndElement:
			path = path[:len(path)-1]
		case nil: // the end of the document, or an error
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// checkElement checks one element, whose path is the names from the root down.
func checkElement(known map[string][]string, path string, attrs []xml.Attr) error {
	if strings.HasPrefix(path, "domain/metadata/") { // free content
		return nil
	}
	allowed, ok := known[path]
	if !ok {
		return fmt.Errorf("<%s> is not understood", path)
	}
	for _, a := range attrs {
		if !slices.Contains(allowed, a.Name.Local) {
			return fmt.Errorf("attribute %s of <%s> is not understood", a.Name.Local, path)
		}
	}
	return nil
}
