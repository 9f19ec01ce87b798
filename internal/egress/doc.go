// Package egress is the only way from a sandbox to a network.
//
// A [backend.Network] is a set of server-owned sockets in the network namespace of a
// sandbox. Every connection of a program reaches one of them, whatever its address.
// [Proxy.Attach] serves them. It finds the name of the host that the program wants,
// asks a [Policy], dials the host by name from the server, checks the address that the
// dial uses, and copies bytes. The program chooses only a name and a port. The address
// that it connects to, its resolver, its proxy settings and its hosts file do not
// change where the bytes go.
//
//   - DNS (any address, port 53) answers an open name with an address of
//     198.18.0.0/15 that represents it, and any other name with NXDOMAIN. It never
//     asks another resolver, so a question cannot carry data out.
//   - The proxy (127.0.0.1:312) takes CONNECT and http:// requests.
//   - Port 443 is TLS. crypto/tls parses the ClientHello. Its server name must be the
//     host of the connection, also in a second ClientHello that the host asks for. A
//     missing or different server name, Encrypted ClientHello, and anything that is
//     not TLS are refused.
//   - Port 80 is HTTP/1, one request per connection. Request line, Host header and
//     connection must name the same host. The proxy writes a new request without
//     hop-by-hop headers. It drops Upgrade, so WebSockets work over TLS only.
//   - Other ports are served if an open domain names them. TLS and HTTP on them get
//     the same checks. Any other protocol is copied unchanged; the proxy then knows
//     the host from the address that DNS gave for it.
//
// If the destination address represents no name, the proxy takes the host from the
// server name or the Host header and dials that name, never the address.
//
// Every refusal is immediate, is counted and has a reason. The program gets a 403 with
// a text, a TLS alert, or a reset. A policy that asks a person may instead hold the
// connection until there is an answer.
//
// # What names and TLS cannot stop
//
// An open host is also open for sending. A program that may read from a code host, a
// bucket or a package index may write to it, under any account. A wildcard lets a
// program choose names; the domain's name servers see each name that is dialled. The
// proxy does not see inside TLS: if a server has one certificate for several names, a
// program can request another of these names inside the connection. Paths, methods and
// amounts are not checked. A raw port passes anything to its host. Timing and volume
// carry data. The owner of a name decides where it leads: only special addresses
// (private, loopback, link-local, of this machine and so on) are refused. Bytes from
// an open host may be hostile.
package egress
