"""A name server that knows one name. Usage: name-server.py ADDRESS NAME ITS-ADDRESS"""

import socket
import struct
import sys

address, name, its_address = sys.argv[1:]
asked_for = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((address, 53))
while True:
    query, client = server.recvfrom(512)
    end = query.index(b"\0", 12) + 1
    question, (kind,) = query[12:end + 4], struct.unpack("!H", query[end:end + 2])
    known = query[12:end].lower() == asked_for
    answer = b""
    if known and kind == 1:
        answer = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + socket.inet_aton(its_address)
    # Response, recursion available; no such name, or as many answers as there are.
    flags = 0x8180 if known else 0x8183
    server.sendto(query[:2] + struct.pack("!HHHHH", flags, 1, 1 if answer else 0, 0, 0) + question + answer, client)
