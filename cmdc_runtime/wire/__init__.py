"""What goes over the sockets, and the sockets: the one package here that imports zmq.

``frames`` says who, which request and in what order; ``codec`` encodes them and their bodies;
``sockets`` sends and receives them.
"""
