package portmap

import (
	"net/netip"
	"slices"
	"sync"
)

// Service is one version of a program, with the port that serves it.
type Service struct {
	Program, Version uint32 // numbers of RPC
	Netid            string // "tcp" or "udp", for IPv4 and IPv6
	Port             uint16 // port on every address of this machine
}

// Netids, and the protocol numbers that version 2 uses instead (RFC 1833 section 3.1).
const (
	TCP = "tcp" // netid of TCP
	UDP = "udp" // netid of UDP

	protoTCP = 6  // TCP in version 2
	protoUDP = 17 // UDP in version 2
)

// maxServices bounds the services, so that a caller on this machine cannot fill the memory.
const maxServices = 256

// A Map contains services and answers the port mapper's calls about them. It is safe for concurrent
// use.
type Map struct {
	mu       sync.Mutex // guards services
	services []Service  // registered services, in the order of registration
}

// NewMap returns a Map of these services.
func NewMap(services ...Service) *Map { return &Map{services: services} }

// listServices returns a copy of the services.
func (m *Map) listServices() []Service {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.services)
}

// findPort returns the port of a version of a program. If only other versions exist, it returns the
// port of one: the program replies with its versions. It returns 0 if the program is not registered.
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

// findExactPort returns the port of this version; 0 if it is not registered.
func (m *Map) findExactPort(program, version uint32, netid string) uint16 {
	for _, s := range m.listServices() {
		if s.Program == program && s.Version == version && s.Netid == netid {
			return s.Port
		}
	}
	return 0
}

// addService adds a service for a caller on this machine. It reports false for other callers, an
// incomplete service, a full Map, or if the version is registered already.
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

// removeService removes a version of a program for a caller on this machine, and reports whether there
// was one. An empty netid removes it for all transports.
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
