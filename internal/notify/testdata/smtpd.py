"""An SMTP server: smtpd.py MODE CERT KEY. MODE is starttls, tls or plain. It accepts the user decamp with
the password correct-horse, refuses recipients that begin with refused, and prints its port and each mail
as a line of JSON."""
import asyncio, json, socket, ssl, sys
from aiosmtpd.smtp import SMTP, AuthResult

mode, cert, key, methods = sys.argv[1:5]
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(cert, key)


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("refused"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        print(json.dumps({"from": envelope.mail_from, "to": envelope.rcpt_tos, "login": (session.auth_data or b"").decode(),
                          "tls": session.ssl is not None or mode == "tls", "content": envelope.content.decode()}), flush=True)
        return "250 OK"


def authenticate(server, session, envelope, mechanism, data):
    good = data.login == b"decamp" and data.password == b"correct-horse"
    return AuthResult(success=good, handled=False, auth_data=data.login if good else None)


def server():
    return SMTP(Handler(), hostname="mail.example", authenticator=authenticate, auth_required=mode != "plain",
                auth_require_tls=mode == "starttls", auth_exclude_mechanism=[m for m in ("PLAIN", "LOGIN") if m not in methods],
                tls_context=tls if mode == "starttls" else None, require_starttls=mode == "starttls")


async def main():
    listener = socket.create_server(("127.0.0.1", 0))
    s = await asyncio.get_running_loop().create_server(server, sock=listener, ssl=tls if mode == "tls" else None)
    print(listener.getsockname()[1], flush=True)
    await s.serve_forever()


asyncio.run(main())
