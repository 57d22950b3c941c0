package export

import (
	"context"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// Client is the client of an export in the format of exports(5): *, a name or address
// of a host, a network, a name with * or ?, or a netgroup.
type Client string

// Everybody matches all hosts.
const Everybody Client = "*"

// rank is the kind of a client. If several clients match a host, the rules of the
// lowest rank apply, as in support/export of nfs-utils.
type rank uint8

const (
	isHost      rank = iota // name or address of one host
	isNetwork               // network with a prefix length or a mask
	isPattern               // name with wildcards
	isNetgroup              // NIS netgroup
	isEverybody             // all hosts
)

// rank returns the kind of a client.
func (c Client) rank() rank {
	switch {
	case c == Everybody:
		return isEverybody
	case strings.HasPrefix(string(c), "@"):
		return isNetgroup
	case strings.ContainsAny(string(c), "*?["):
		return isPattern
	case strings.Contains(string(c), "/"):
		return isNetwork
	}
	return isHost
}

// toPrefix returns the addresses of a network or of a single address, and false for
// other clients.
func (c Client) toPrefix() (netip.Prefix, bool) {
	addr, mask, slash := strings.Cut(string(c), "/")
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return netip.Prefix{}, false
	}
	if !slash {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	// A mask may be an address, such as 255.255.255.0, or a number of bits.
	if m, err := netip.ParseAddr(mask); err == nil {
		return prefixOf(a, m)
	}
	p, err := netip.ParsePrefix(string(c))
	return p.Masked(), err == nil
}

// prefixOf returns the network of an address with a mask such as 255.255.255.0.
func prefixOf(a, mask netip.Addr) (netip.Prefix, bool) {
	bits := 0
	for _, b := range mask.AsSlice() {
		for ; b&0x80 != 0; b <<= 1 {
			bits++
		}
	}
	p, err := a.Prefix(bits)
	return p, err == nil
}

// canonical returns c in the form used for comparisons: networks as address/bits, names
// in lower case.
func (c Client) canonical() Client {
	if c == "<world>" { // exportfs -v
		return Everybody
	}
	if p, ok := c.toPrefix(); ok {
		if p.IsSingleIP() {
			return Client(p.Addr().String())
		}
		return Client(p.String())
	}
	return Client(strings.ToLower(string(c)))
}

// isSame reports whether two clients are the same. exportfs appends the domain to names
// of hosts.
func (c Client) isSame(o Client) bool {
	a, b := c.canonical(), o.canonical()
	if a == b {
		return true
	}
	return a.rank() == isHost && b.rank() == isHost &&
		(strings.HasPrefix(string(a), string(b)+".") || strings.HasPrefix(string(b), string(a)+"."))
}

// Answer is yes, no or unknown. The zero value is Unknown.
type Answer uint8

// The zero value is the honest one.
const (
	Unknown Answer = iota // it cannot be determined
	No
	Yes
)

// answerOf converts a bool.
func answerOf(yes bool) Answer {
	if yes {
		return Yes
	}
	return No
}

// admitsAddr reports whether a host with the address matches c. A name that cannot be
// resolved does not match, because the server on this machine cannot resolve it either.
// A netgroup is Unknown.
func (c Client) admitsAddr(ctx context.Context, addr netip.Addr, r Resolver) Answer {
	switch c = c.canonical(); c.rank() {
	case isEverybody:
		return Yes
	case isNetgroup:
		return Unknown
	case isPattern:
		return c.matchesPattern(ctx, addr, r)
	}
	if p, ok := c.toPrefix(); ok {
		return answerOf(p.Contains(addr.Unmap()))
	}
	return answerOf(slices.Contains(c.lookupAddrs(ctx, r), addr.Unmap()))
}

// lookupAddrs returns the addresses of a host. It returns nil if the name cannot be
// resolved.
func (c Client) lookupAddrs(ctx context.Context, r Resolver) []netip.Addr {
	if a, err := netip.ParseAddr(string(c)); err == nil {
		return []netip.Addr{a.Unmap()}
	}
	addrs, _ := r.LookupNetIP(ctx, "ip", string(c)) // none: it has none
	for i, a := range addrs {
		addrs[i] = a.Unmap()
	}
	return addrs
}

// matchesPattern compares a pattern with the names of an address. An address without a
// name does not match.
func (c Client) matchesPattern(ctx context.Context, addr netip.Addr, r Resolver) Answer {
	names, err := r.LookupAddr(ctx, addr.String())
	return answerOf(err == nil && slices.ContainsFunc(names, func(name string) bool {
		ok, err := path.Match(string(c), strings.ToLower(strings.TrimSuffix(name, ".")))
		return ok && err == nil
	}))
}
