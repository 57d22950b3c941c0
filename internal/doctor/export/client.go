package export

import (
	"context"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// Client is who an export is for, as exports(5) writes it: *, a host's name or address, a
// network, a name with * or ?, or a netgroup.
type Client string

// Everybody is any host.
const Everybody Client = "*"

// rank orders the kinds of clients: if several match a host, the rules of the lowest one apply, as in
// nfs-utils' support/export.
type rank uint8

const (
	isHost rank = iota
	isNetwork
	isPattern
	isNetgroup
	isEverybody
)

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

// network returns the addresses that c stands for, if it is a network or an address.
func (c Client) network() (netip.Prefix, bool) {
	addr, mask, slash := strings.Cut(string(c), "/")
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return netip.Prefix{}, false
	}
	if !slash {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	if m, err := netip.ParseAddr(mask); err == nil {
		return masked(a, m)
	}
	p, err := netip.ParsePrefix(string(c))
	return p.Masked(), err == nil
}

// masked is the network of a mask that is written as an address.
func masked(a, mask netip.Addr) (netip.Prefix, bool) {
	bits := 0
	for _, b := range mask.AsSlice() {
		for ; b&0x80 != 0; b <<= 1 {
			bits++
		}
	}
	p, err := a.Prefix(bits)
	return p, err == nil
}

// canonical is c as it is compared: networks in the form address/bits, names in lower case.
func (c Client) canonical() Client {
	if c == "<world>" { // exportfs -v
		return Everybody
	}
	if p, ok := c.network(); ok {
		if p.IsSingleIP() {
			return Client(p.Addr().String())
		}
		return Client(p.String())
	}
	return Client(strings.ToLower(string(c)))
}

// same reports whether two say the same: exportfs completes names of hosts.
func (c Client) same(o Client) bool {
	a, b := c.canonical(), o.canonical()
	if a == b {
		return true
	}
	return a.rank() == isHost && b.rank() == isHost &&
		(strings.HasPrefix(string(a), string(b)+".") || strings.HasPrefix(string(b), string(a)+"."))
}

// Answer is yes, no, or that it cannot be known.
type Answer uint8

// The zero value is the honest one.
const (
	Unknown Answer = iota
	No
	Yes
)

func answer(yes bool) Answer {
	if yes {
		return Yes
	}
	return No
}

// admits reports whether a host at addr is one of c. A name that we cannot look up the server of
// this machine cannot either.
func (c Client) admits(ctx context.Context, addr netip.Addr, r Resolver) Answer {
	switch c = c.canonical(); c.rank() {
	case isEverybody:
		return Yes
	case isNetgroup:
		return Unknown
	case isPattern:
		return c.matches(ctx, addr, r)
	}
	if p, ok := c.network(); ok {
		return answer(p.Contains(addr.Unmap()))
	}
	return answer(slices.Contains(c.addrs(ctx, r), addr.Unmap()))
}

// addrs are the addresses of a host; none where its name is not known.
func (c Client) addrs(ctx context.Context, r Resolver) []netip.Addr {
	if a, err := netip.ParseAddr(string(c)); err == nil {
		return []netip.Addr{a.Unmap()}
	}
	addrs, _ := r.LookupNetIP(ctx, "ip", string(c)) // none: it has none
	for i, a := range addrs {
		addrs[i] = a.Unmap()
	}
	return addrs
}

// matches compares a pattern with the names that the address has. Without a name, there is
// nothing to compare.
func (c Client) matches(ctx context.Context, addr netip.Addr, r Resolver) Answer {
	names, err := r.LookupAddr(ctx, addr.String())
	return answer(err == nil && slices.ContainsFunc(names, func(name string) bool {
		ok, err := path.Match(string(c), strings.ToLower(strings.TrimSuffix(name, ".")))
		return ok && err == nil
	}))
}
