# Writes the bytes of file FROM as a C++ file TO: `extern "C" const unsigned char SYMBOL[]`, aligned for whoever maps it.
file(READ ${FROM} hex HEX)
string(REPEAT "." 64 line)
string(REGEX REPLACE "(${line})" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
set(declaration "const unsigned char ${SYMBOL}[]")
file(WRITE ${TO} "extern \"C\" {\nextern ${declaration};\nalignas(64) ${declaration} = {\n${bytes}\n};\n}\n")
