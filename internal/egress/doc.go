// Package egress is the only way from a sandbox to a network.
//
// A sandbox's [backend.Network] is sockets that stand inside of it and are ours;
// whatever a program connects to, it reaches them. [Proxy.Attach] serves them. It
// finds out which host is meant, asks a [Policy], dials that host by name from
// here, checks the address that is really used, and copies bytes. The program
// chooses a name and a port and nothing else; the address it aims at, its own
// resolver, proxy settings and hosts file have no say in where bytes go.
//
//   - DNS (any address, port 53) gives a name that is open one address of
//     198.18.0.0/15 that stands for it, and NXDOMAIN to all others. Nothing is
//     ever asked of another resolver for a program, so no name carries data out.
//   - The proxy (127.0.0.1:3128) takes CONNECT and http:// requests.
//   - Port 443 is TLS. crypto/tls parses the ClientHello; its server name has to be
//     the host that was asked for. None, another, Encrypted ClientHello, or
//     something that is not TLS is refused.
//   - Port 80 is HTTP/1, one request a connection. The host of the request line,
//     the Host header and the host of the connection are one. The request is
//     written anew, without what concerns a single hop; Upgrade is dropped, so
//     WebSockets work over TLS alone.
//   - Another port is there when it is named in what is open. Where TLS or HTTP is
//     spoken there, the same checks hold; anything else is copied as it is, and the
//     host is known by the address that DNS gave for it.
//
// A connection to an address that stands for no name is judged by the server name
// or the Host that it sends, and goes to that name, not to the address.
//
// Every refusal is quick, is counted and has a reason: a 403 with a text, a TLS
// alert, or a reset. A policy that asks a person may hold a connection instead.
//
// # What names and TLS cannot stop
//
// A host that is open is open for sending, too: whoever may read from a code host,
// a bucket or a package index may write to it, under any account. A wildcard lets
// a program choose names, and the name servers of the domain hear them, when the
// name is dialled. Inside TLS nothing is seen: a server that serves several names
// under one certificate can be asked, inside, for another than the one that was
// checked; and paths, methods and amounts are not judged. Through a raw port
// anything goes to that host. Timing and volume carry data. What is behind a name
// is its owner's to change: only addresses that are special (private, loopback,
// link-local, of this machine and so on) are refused. Bytes that an allowed host sends
// back are as hostile as any.
package egress
