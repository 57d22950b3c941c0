package portmap

import (
	"net/netip"
	"slices"
	"sync"
)

// Service is a version of a program at a port.
type Service struct {
	Program, Version uint32
	Netid            string // "tcp" or "udp"; for IPv6 too
	Port             uint16
}

// Netids, and their protocol numbers, which version 2 has instead (RFC 1833 section 3.1).
const (
	TCP = "tcp"
	UDP = "udp"

	protoTCP = 6
	protoUDP = 17
)

// maxServices keeps callers on this machine from filling the memory.
const maxServices = 256

// Map knows services.
type Map struct {
	mu       sync.Mutex
	services []Service
}

// NewMap returns a Map of these services.
func NewMap(services ...Service) *Map { return &Map{services: services} }

func (m *Map) listServices() []Service {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.services)
}

// findPort returns where a version of a program is; where there is another version only,
// that one's port: the program itself says which it has. 0: nowhere.
func (m *Map) findPort(program, version uint32, netid string) uint16 {
	var other uint16
	for _, s := range m.listServices() {
		if s.Program != program || s.Netid != netid {
			continue
		}
		if s.Version == version {
			return s.Port
		}
		other = s.Port
	}
	return other
}

// findExactPort is port for a client that wants this version and no other.
func (m *Map) findExactPort(program, version uint32, netid string) uint16 {
	for _, s := range m.listServices() {
		if s.Program == program && s.Version == version && s.Netid == netid {
			return s.Port
		}
	}
	return 0
}

// addService enters a service and reports whether there was none in its place.
func (m *Map) addService(from netip.Addr, s Service) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := slices.ContainsFunc(m.services, func(o Service) bool {
		return o.Program == s.Program && o.Version == s.Version && o.Netid == s.Netid
	})
	if !from.IsLoopback() || taken || len(m.services) >= maxServices || s.Netid == "" || s.Port == 0 {
		return false
	}
	m.services = append(m.services, s)
	return true
}

// removeService takes out a version of a program, of all transports where netid is empty, and
// reports whether there was one.
func (m *Map) removeService(from netip.Addr, program, version uint32, netid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := len(m.services)
	if from.IsLoopback() {
		m.services = slices.DeleteFunc(m.services, func(s Service) bool {
			return s.Program == program && s.Version == version && (netid == "" || s.Netid == netid)
		})
	}
	return len(m.services) < before
}
